// The root of the tree (DESIGN 5): owns the listener, the nodes, the clients and one job supervisor per job. Routes
// frames between them; every link event, pings included, passes through its mailbox.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/event.hpp"
#include "base/log.hpp"
#include "transport/link/link_service.hpp"

namespace kintsugi::actors {

struct ClusterOptions {
  std::string address;     // numeric; empty: every interface
  std::uint16_t port = 0;  // 0: any free one
  transport::Identity identity;
  std::uint32_t epoch = 1;  // a restarted supervisor takes a new one
  bool embedded = false;    // the cluster lives for one job: it is cancelled when the client that follows it is gone
  std::string version;      // for reports
  Logger logger;
};

// A running cluster supervisor in this process.
class Cluster {
 public:
  // Error{tell_user}: the address cannot be listened on.
  static Result<std::unique_ptr<Cluster>> start(ClusterOptions options);
  // Whatever still runs is left to its parent-death signal; call stop() and wait for done() first.
  ~Cluster();

  const transport::ListenAddress& address() const;
  // Cancels jobs, tells nodes to leave, then signals done(). Within the stop deadline of a job: two seconds at most,
  // mostly far less. Any thread; once is enough.
  void stop(const std::string& why);
  // Also signalled when a client asked for the end of the cluster.
  const Event& done() const;

 private:
  struct Impl;
  explicit Cluster(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kintsugi::actors
