// The actors of one process: whose child each is, its incarnation, why the one before ended. Kept by their shells
// (actors/supervised.hpp); `status` and injected crashes look here.
#pragma once

#include <caf/actor.hpp>
#include <caf/allowed_unsafe_message_type.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "schemas/control.capnp.h"

namespace kintsugi::actors {

struct ActorRow {
  std::string name;
  std::uint32_t depth = 0;  // 0: the root
  std::uint32_t incarnation = 1;
  std::uint32_t restarts = 0;
  std::string last_crash;  // empty: there was none
};

// To whoever watches the tree.
struct ActorsChanged {};

// Thread safe. Outlives every actor in it.
class ActorTree {
 public:
  using Key = std::uint64_t;  // 0: none

  explicit ActorTree(Logger logger) : logger_(std::move(logger)) {}

  // `interrupt`: has an actor that is busy for long look into its mailbox; may be empty. Any thread.
  Key add(const std::string& name, Key parent, const caf::actor& who, std::function<void()> interrupt);
  void restarted(Key key, std::uint32_t incarnation, const std::string& last_crash);
  void remove(Key key);

  // The first of that name throws, soon. False: there is none.
  bool crash(const std::string& name) const;
  // A parent before its children, siblings in the order in which they came.
  std::vector<ActorRow> rows() const;
  // Is sent ActorsChanged at each change; one, at most, and null to forget it.
  void watch(const caf::actor& watcher);

  const Logger& logger() const { return logger_; }

 private:
  struct Entry {
    ActorRow row;
    Key parent = 0;
    caf::actor who;
    std::function<void()> interrupt;
  };

  void append(std::vector<ActorRow>& out, Key parent) const;
  void changed() const;

  const Logger logger_;
  mutable std::mutex mutex_;
  std::map<Key, Entry> entries_;
  Key last_ = 0;
  caf::actor watcher_;
};

// `rank`: whose process it is; none: a node's.
void write_actors(const ActorTree& tree, std::optional<std::uint32_t> rank, schemas::ProcessActors::Builder out);
std::vector<ActorRow> read_actors(schemas::ProcessActors::Reader in);

}  // namespace kintsugi::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::ActorsChanged)
