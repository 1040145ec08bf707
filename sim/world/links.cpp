#include "sim/world/links.hpp"

#include <algorithm>
#include <utility>

namespace kintsugi::sim {

namespace {
// A link's queue in production is bounded in bytes; no protocol of ours keeps so many frames under way.
constexpr std::size_t kMostUnderWay = 4096;
}  // namespace

LinkId Links::open(Pid a, LinkUser& user_a, Pid b, LinkUser& user_b, const LinkTimes& times) {
  const LinkId id = static_cast<LinkId>(links_.size());
  Link& link = links_.emplace_back();
  link.times = times;
  link.ends[0] = {.pid = a, .user = &user_a};
  link.ends[1] = {.pid = b, .user = &user_b};
  of_process_.resize(std::max<std::size_t>(of_process_.size(), std::max(a, b) + 1));
  of_process_[a].push_back(id);
  of_process_[b].push_back(id);
  return id;
}

bool Links::is_up(LinkId link, Pid at) const {
  return links_.at(link).ends[index(link, at)].up;
}

void Links::send(LinkId id, Pid from, std::uint64_t tag, std::shared_ptr<const Message> message) {
  const std::size_t end = index(id, from);
  if (links_.at(id).ends[end].up) transmit(id, end, {kFrame, tag, std::move(message), {}});
}

void Links::close(LinkId id, Pid from, const std::string& why) {
  const std::size_t end = index(id, from);
  if (!std::exchange(links_.at(id).ends[end].up, false)) return;
  transmit(id, end, {kDown, 0, nullptr, "the peer closed the link: " + why});
}

void Links::transmit(LinkId id, std::size_t from, Waiting what) {
  Link& link = links_[id];
  End& sender = link.ends[from];
  if (sender.cut) return sender.held.push_back(std::move(what));
  const Duration takes = draws_.between(link.times.fastest, link.times.slowest) * processes_.slowness(sender.pid);
  sender.last = std::max(sender.last, processes_.now() + takes + sender.delay);
  most_under_way_ = std::max(most_under_way_, ++sender.under_way);
  KINTSUGI_ASSERT_MSG(sender.under_way <= kMostUnderWay, "a link's queue has no bound");
  const std::size_t to = 1 - from;
  const std::uint32_t kind = what.kind;
  const std::uint64_t tag = what.tag;
  processes_.post(kWorld, sender.last, kind, fold(tag, link.ends[to].pid),
                  [this, id, to, what = std::move(what), flight = sender.flight] { arrive(id, to, what, flight); });
}

// At the receiver's machine; if the receiver is stopped, it reads it when it goes on.
void Links::arrive(LinkId id, std::size_t at, const Waiting& what, std::uint64_t flight) {
  End& sender = links_[id].ends[1 - at];
  --sender.under_way;
  const Pid to = links_[id].ends[at].pid;
  if (flight != sender.flight || !processes_.is_alive(to)) return;
  const auto read = [this, id, at, what] {
    if (!links_[id].ends[at].up) return;
    if (what.kind == kDown) return down(id, at, what.why);
    links_[id].ends[at].user->on_message(id, what.message);
  };
  if (processes_.is_stopped(to)) return processes_.post(to, processes_.now(), what.kind, what.tag, read);
  read();
}

void Links::down(LinkId id, std::size_t at, const std::string& why) {
  End& end = links_[id].ends[at];
  if (!std::exchange(end.up, false)) return;
  end.user->on_link_down(id, why);
}

void Links::process_ends(Pid pid, bool reset) {
  for (const LinkId id : open_links(pid)) {
    End& end = links_[id].ends[index(id, pid)];
    if (reset) {
      ++end.flight;
      end.held.clear();
      end.last = processes_.now();
    }
    if (std::exchange(end.up, false)) transmit(id, index(id, pid), {kDown, 0, nullptr, "connection reset"});
  }
}

void Links::process_vanishes(Pid pid) {
  for (const LinkId id : open_links(pid)) {
    End& end = links_[id].ends[index(id, pid)];
    ++end.flight;
    end.held.clear();
    end.up = false;
    mute(id, true);  // for ever
  }
}

void Links::cut(LinkId id, Pid from) {
  End& end = links_.at(id).ends[index(id, from)];
  if (std::exchange(end.cut, true)) return;
  mute(id, true);
}

void Links::mend(LinkId id, Pid from) {
  const std::size_t at = index(id, from);
  End& end = links_.at(id).ends[at];
  if (!std::exchange(end.cut, false)) return;
  mute(id, false);
  for (Waiting& what : std::exchange(end.held, {})) transmit(id, at, std::move(what));
}

void Links::mend_all() {
  for (LinkId id = 0; id < links_.size(); ++id) {
    for (std::size_t at = 0; at < 2; ++at) {
      links_[id].ends[at].delay = {};
      mend(id, links_[id].ends[at].pid);
    }
  }
}

// Both ends ping; the first ping that finds no answer was sent at most an interval after the silence began.
void Links::mute(LinkId id, bool begins) {
  Link& link = links_[id];
  link.mute += begins ? 1 : -1;
  if (link.mute != (begins ? 1U : 0U)) return;
  const std::uint64_t number = ++link.mute_number;
  if (!begins) return;
  for (std::size_t at = 0; at < 2; ++at) {
    const Pid pid = link.ends[at].pid;
    if (!link.ends[at].up || !processes_.is_alive(pid)) continue;
    const Duration phase = draws_.between(Duration{}, link.times.ping_interval);
    processes_.post(pid, processes_.now() + phase + link.times.ping_deadline, kSilent, id, [this, id, at, number] {
      if (links_[id].mute_number != number || !links_[id].ends[at].up) return;
      transmit(id, at, {kDown, 0, nullptr, "connection reset"});
      down(id, at, "no answer to pings for 1600 ms");
    });
  }
}

void Links::mute_all(Pid pid, bool begins) {
  for (const LinkId id : open_links(pid)) mute(id, begins);
}

std::vector<LinkId> Links::open_links(Pid pid) const {
  std::vector<LinkId> open;
  if (pid >= of_process_.size()) return open;
  for (const LinkId id : of_process_[pid]) {
    if (links_[id].ends[0].up || links_[id].ends[1].up) open.push_back(id);
  }
  return open;
}

}  // namespace kintsugi::sim
