// Control links between processes, as transport/link gives them: frames arrive whole and in order or not at all, and either
// end learns of the other's end. A peer that says nothing is noticed by its unanswered pings; what cannot answer is known to
// the world, so pings that are answered are not simulated one by one.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "sim/world/processes.hpp"

namespace kintsugi::sim::protocol {
struct Message;  // nothing here looks inside
}  // namespace kintsugi::sim::protocol

namespace kintsugi::sim {

using protocol::Message;

using LinkId = std::uint32_t;

// Who owns an end. Lives as long as the world.
class LinkUser {
 public:
  virtual ~LinkUser() = default;
  virtual void on_message(LinkId link, const std::shared_ptr<const Message>& message) = 0;
  virtual void on_link_down(LinkId link, const std::string& why) = 0;
};

struct LinkTimes {
  Duration fastest, slowest;  // of a frame, one way
  Duration ping_interval = milliseconds(400);
  Duration ping_deadline = milliseconds(1'600);
};

class Links {
 public:
  enum EventKind : std::uint32_t { kFrame = 1, kDown, kSilent };

  Links(Processes& processes, std::uint64_t seed) : processes_(processes), draws_(seed, 0x4C494E4B) {}

  // Both ends are up at once.
  LinkId open(Pid a, LinkUser& user_a, Pid b, LinkUser& user_b, const LinkTimes& times);
  // `tag`: of the message, for the hash. A link that is down swallows it.
  void send(LinkId link, Pid from, std::uint64_t tag, std::shared_ptr<const Message> message);
  // The other end hears of it after all that was sent.
  void close(LinkId link, Pid from, const std::string& why);
  bool is_up(LinkId link, Pid at) const;

  // --- faults -------------------------------------------------------------------------------------------------------
  // Call right before the process ends. Its peers see end-of-file after what it sent, or with `reset` lose what is under way.
  void process_ends(Pid pid, bool reset);
  // Its machine is gone: nobody says so, and what is under way is lost.
  void process_vanishes(Pid pid);
  void process_stops(Pid pid) { mute_all(pid, true); }
  void process_goes_on(Pid pid) { mute_all(pid, false); }
  // Frames of `from` wait, in order, until it is mended.
  void cut(LinkId link, Pid from);
  void mend(LinkId link, Pid from);
  // Frames of `from` take so much longer.
  void delay(LinkId link, Pid from, Duration extra) { links_.at(link).ends[index(link, from)].delay = extra; }

  void mend_all();
  Pid peer(LinkId link, Pid at) const { return links_.at(link).ends[1 - index(link, at)].pid; }
  // It is down at an end, or is about to be.
  bool is_troubled(LinkId link) const {
    const Link& l = links_.at(link);
    return l.mute > 0 || !l.ends[0].up || !l.ends[1].up;
  }
  // Those that are up at either end, oldest first.
  std::vector<LinkId> open_links(Pid pid) const;
  std::size_t most_under_way() const { return most_under_way_; }

 private:
  struct Waiting {
    std::uint32_t kind = kFrame;
    std::uint64_t tag = 0;
    std::shared_ptr<const Message> message;
    std::string why;
  };
  struct End {
    Pid pid = 0;
    LinkUser* user = nullptr;
    bool up = true;
    bool cut = false;          // what it sends waits
    Duration delay;            // of what it sends
    Instant last;              // when the last that it sent arrives
    std::uint64_t flight = 0;  // what it sent under a lower number is lost
    std::size_t under_way = 0;
    std::vector<Waiting> held;
  };
  struct Link {
    LinkTimes times;
    std::array<End, 2> ends;
    std::uint32_t mute = 0;         // reasons why pings are not answered
    std::uint64_t mute_number = 0;  // of the silence under way
  };

  std::size_t index(LinkId link, Pid pid) const { return links_.at(link).ends[0].pid == pid ? 0 : 1; }
  void transmit(LinkId id, std::size_t from, Waiting what);
  void arrive(LinkId id, std::size_t at, const Waiting& what, std::uint64_t flight);
  void down(LinkId id, std::size_t at, const std::string& why);
  void mute(LinkId id, bool begins);
  void mute_all(Pid pid, bool begins);

  Processes& processes_;
  Draws draws_;
  std::vector<Link> links_;
  std::vector<std::vector<LinkId>> of_process_;  // by Pid
  std::size_t most_under_way_ = 0;
};

}  // namespace kintsugi::sim
