#include "transport/ucx/ucx_context.hpp"

#include <array>
#include <utility>

namespace kintsugi::transport::ucx {
namespace {
Error failed(const std::string& what, ucs_status_t status) {
  return {ErrorAction::tell_user,
          "UCX cannot " + what + ": " + ucs_status_string(status) + "; check the interface named for data"};
}
}  // namespace

Result<std::shared_ptr<UcxContext>> UcxContext::create(const std::string& interface) {
  ucp_config_t* config = nullptr;
  if (const auto status = ucp_config_read(nullptr, nullptr, &config); status != UCS_OK) {
    return failed("read its configuration", status);
  }
  const std::unique_ptr<ucp_config_t, void (*)(ucp_config_t*)> owner(config, ucp_config_release);
  const std::string threshold = std::to_string(kRendezvousBytes);
  const std::array<std::pair<const char*, const char*>, 3> settings{{
      {"TLS", "tcp"},
      {"RNDV_THRESH", threshold.c_str()},
      {"NET_DEVICES", interface.empty() ? "all" : interface.c_str()},
  }};
  for (const auto& [name, value] : settings) {
    if (const auto status = ucp_config_modify(config, name, value); status != UCS_OK) {
      return failed(std::string("set ") + name + "=" + value, status);
    }
  }
  Result<ProbeListener> probes = ProbeListener::open(interface);
  if (!probes) return probes.error();
  ucp_params_t parameters{};
  parameters.field_mask = UCP_PARAM_FIELD_FEATURES;
  parameters.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  ucp_context_h context = nullptr;
  if (const auto status = ucp_init(&parameters, config, &context); status != UCS_OK) {
    return failed("start on interface '" + interface + "'", status);
  }
  return std::shared_ptr<UcxContext>(new UcxContext(context, std::move(*probes)));
}

UcxContext::~UcxContext() {
  ucp_cleanup(context_);
}

}  // namespace kintsugi::transport::ucx
