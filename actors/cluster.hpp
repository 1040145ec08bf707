// A running cluster supervisor in this process: its actors, its listener and the nodes and clients that reach it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/event.hpp"
#include "base/log.hpp"
#include "engine/telemetry/journal.hpp"
#include "transport/link/link_service.hpp"

namespace kintsugi::actors {

struct ClusterOptions {
  std::string address;     // numeric; empty: every interface
  std::uint16_t port = 0;  // 0: any free one
  transport::Identity identity;
  // Where promises are kept, and from which a restarted supervisor knows its nodes and jobs. None: they last as long as this
  // process.
  std::shared_ptr<Journal> journal;
  bool embedded = false;  // the cluster lives for one job: it is cancelled when the client that follows it is gone
  // This process was away for so long that nodes have given it up. It must not decide who is lost, but end at once and be
  // succeeded as if it had died: nodes go on meanwhile. Empty: it decides.
  std::function<void(Duration)> on_stall;
  // Its root actor crashes again and again, whatever it has been given to go on with. Likewise; empty: done() fails.
  std::function<void(const std::string& why)> on_spent;
  std::string version;  // for reports
  Logger logger;
};

class Cluster {
 public:
  // Error{tell_user}: the address cannot be listened on, or a job in the journal is not one of this version.
  static Result<std::unique_ptr<Cluster>> start(ClusterOptions options);
  // Whatever still runs is left to its parent-death signal, or to the next supervisor; call stop() and wait for done()
  // first to end it.
  ~Cluster();

  const transport::ListenAddress& address() const;
  // Cancels jobs, tells nodes to leave, then signals done(). Within the stop deadline of a job: two seconds at most,
  // mostly far less. Any thread; once is enough.
  void stop(const std::string& why);
  // Also signalled when a client asked for the end of the cluster. Fails when the journal does: the supervisor must go, its
  // nodes go on.
  const Event& done() const;

 private:
  struct Impl;
  explicit Cluster(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kintsugi::actors
