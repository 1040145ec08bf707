#include "transport/link/cluster_file.hpp"

#include <unistd.h>

#include <nlohmann/json.hpp>

#include "base/units.hpp"
#include "transport/link/private_file.hpp"

namespace kintsugi::transport {

namespace {
std::string path_in(const std::string& state_directory) {
  return state_directory + "/cluster.json";
}
}  // namespace

Result<void> write_cluster_file(const std::string& state_directory, const ClusterFile& cluster) {
  const nlohmann::json json = {{"addresses", cluster.addresses}, {"token", to_text(cluster.token)}};
  return write_private_file(path_in(state_directory), json.dump(2) + "\n");
}

Result<ClusterFile> read_cluster_file(const std::string& state_directory) {
  const std::string path = path_in(state_directory);
  if (::access(path.c_str(), F_OK) != 0) {
    return Error{ErrorAction::refuse, "no cluster is known here: " + path +
                                          " does not exist; start one with `kintsugi "
                                          "supervise`, or name its state directory"};
  }
  KINTSUGI_TRY_ASSIGN(const std::string text, read_private_file(path, 64 * kKiB));
  const Error damaged{ErrorAction::tell_user, path + " is damaged; `kintsugi supervise` writes it anew when it starts"};
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("addresses") || !json["addresses"].is_array() || json["addresses"].empty() ||
      !json.contains("token") || !json["token"].is_string()) {
    return damaged;
  }
  ClusterFile cluster;
  for (const nlohmann::json& address : json["addresses"]) {
    if (!address.is_string()) return damaged;
    cluster.addresses.push_back(address);
  }
  Result<JoinToken> token = parse_join_token(json["token"].get<std::string>());
  if (!token) return Error{token.error().action, path + ": " + token.error().message};
  cluster.token = *token;
  return cluster;
}

}  // namespace kintsugi::transport
