// UCX as this project uses it: tcp only, because its shared memory does not survive a killed peer (DEPENDENCIES,
// "UCX 1.13.1"); active messages; wake-up by event fd. One context a process, one worker a generation.
#pragma once

#include <ucp/api/ucp.h>

#include <memory>
#include <string>
#include <utility>

#include "base/result.hpp"
#include "transport/ucx/path_probe.hpp"

namespace kintsugi::transport::ucx {

// Above this a message waits with its sender until its receiver has a place for it (rendezvous). UCX 1.13 can leave an
// eager message of several fragments stuck when its sender dies; one of this size is a single fragment.
constexpr std::size_t kRendezvousBytes = 8000;

class UcxContext {
 public:
  // `interface`: the trusted network interface ("eth1", "lo"); empty: all. Error{tell_user} with UCX's reason.
  static Result<std::shared_ptr<UcxContext>> create(const std::string& interface);
  ~UcxContext();
  UcxContext(const UcxContext&) = delete;
  UcxContext& operator=(const UcxContext&) = delete;

  ucp_context_h get() const { return context_; }
  const ProbeListener& probes() const { return probes_; }

 private:
  UcxContext(ucp_context_h context, ProbeListener probes) : context_(context), probes_(std::move(probes)) {}
  ucp_context_h context_;
  ProbeListener probes_;
};

}  // namespace kintsugi::transport::ucx
