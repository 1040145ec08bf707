// `supervise --adopt`: listens where the cluster's nodes look for a supervisor until the journal is gathered from them. The
// shell of Takeover (engine/control/takeover.hpp); the supervisor itself is started after it, at the same address.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/event.hpp"
#include "base/log.hpp"
#include "engine/telemetry/journal_copy.hpp"
#include "transport/link/link_service.hpp"

namespace kintsugi::actors {

struct TakeoverOptions {
  std::string address;  // as ClusterOptions
  std::uint16_t port = 0;
  transport::Identity identity;
  Logger logger;
};

struct GatheredJournal {
  std::uint64_t cluster_id = 0;
  JournalStamp stamp;
  std::vector<JournalEntry> entries;
  std::uint32_t least_epoch = 0;  // for the supervisor that goes on with it
  std::size_t absent = 0;         // nodes named in it that have not come
};

class TakeoverListener {
 public:
  // Error{tell_user}: the address cannot be listened on.
  static Result<std::unique_ptr<TakeoverListener>> start(TakeoverOptions options);
  ~TakeoverListener();  // ends every link: nodes dial again

  const transport::ListenAddress& address() const;
  // Error{refuse}: nobody came who has it.
  const Event& done() const;
  // Once done() without an error.
  GatheredJournal journal() const;

 private:
  struct Impl;
  explicit TakeoverListener(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kintsugi::actors
