#include "actors/actor_tree.hpp"

#include <unistd.h>
#include <caf/send.hpp>

#include <utility>

#include "actors/supervised.hpp"

namespace kintsugi::actors {

ActorTree::Key ActorTree::add(const std::string& name, Key parent, const caf::actor& who,
                              std::function<void()> interrupt) {
  Key key = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto above = entries_.find(parent);
    const std::uint32_t depth = above == entries_.end() ? 0 : above->second.row.depth + 1;
    key = ++last_;
    entries_.emplace(key, Entry{{name, depth, 1, 0, ""}, parent, who, std::move(interrupt)});
  }
  changed();
  return key;
}

void ActorTree::restarted(Key key, std::uint32_t incarnation, const std::string& last_crash) {
  {
    const std::lock_guard lock(mutex_);
    ActorRow& row = entries_.at(key).row;
    row.incarnation = incarnation;
    ++row.restarts;
    row.last_crash = last_crash;
  }
  changed();
}

void ActorTree::remove(Key key) {
  {
    const std::lock_guard lock(mutex_);
    entries_.erase(key);
  }
  changed();
}

bool ActorTree::crash(const std::string& name) const {
  std::function<void()> interrupt;
  {
    const std::lock_guard lock(mutex_);
    const Entry* found = nullptr;
    for (const auto& [key, entry] : entries_) {
      if (entry.row.name == name && found == nullptr) found = &entry;
    }
    if (found == nullptr) return false;
    caf::anon_send(found->who, CrashNow{});
    interrupt = found->interrupt;
  }
  if (interrupt) interrupt();
  return true;
}

std::vector<ActorRow> ActorTree::rows() const {
  const std::lock_guard lock(mutex_);
  std::vector<ActorRow> out;
  append(out, 0);
  return out;
}

// Under the lock.
void ActorTree::append(std::vector<ActorRow>& out, Key parent) const {
  for (const auto& [key, entry] : entries_) {
    const bool is_here = entry.parent == parent || (parent == 0 && !entries_.contains(entry.parent));
    if (!is_here) continue;
    out.push_back(entry.row);
    append(out, key);
  }
}

void ActorTree::watch(const caf::actor& watcher) {
  const std::lock_guard lock(mutex_);
  watcher_ = watcher;
}

void ActorTree::changed() const {
  caf::actor watcher;
  {
    const std::lock_guard lock(mutex_);
    watcher = watcher_;
  }
  if (watcher) caf::anon_send(watcher, ActorsChanged{});
}

void write_actors(const ActorTree& tree, std::optional<std::uint32_t> rank, schemas::ProcessActors::Builder out) {
  const std::vector<ActorRow> rows = tree.rows();
  out.setPid(static_cast<std::uint32_t>(::getpid()));
  out.setOfRank(rank.has_value());
  out.setRank(rank.value_or(0));
  auto list = out.initActors(static_cast<unsigned>(rows.size()));
  for (unsigned i = 0; i < list.size(); ++i) {
    list[i].setName(rows[i].name);
    list[i].setDepth(rows[i].depth);
    list[i].setIncarnation(rows[i].incarnation);
    list[i].setRestarts(rows[i].restarts);
    list[i].setLastCrash(rows[i].last_crash);
  }
}

std::vector<ActorRow> read_actors(schemas::ProcessActors::Reader in) {
  std::vector<ActorRow> rows;
  for (const auto a : in.getActors()) {
    rows.push_back({a.getName().cStr(), a.getDepth(), a.getIncarnation(), a.getRestarts(), a.getLastCrash().cStr()});
  }
  return rows;
}

}  // namespace kintsugi::actors
