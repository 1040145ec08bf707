// How every process of Kintsugi runs its actors: one small system with a shared queue, a bounded turn for each actor,
// and local messages only (between processes, links carry schemas::Message).
#pragma once

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/allowed_unsafe_message_type.hpp>

#include <memory>

#include "actors/control_message.hpp"
#include "base/log.hpp"
#include "transport/link/link.hpp"

namespace kintsugi::actors {

// scheduler.policy=sharing: work stealing polls, which costs 8 % of a core while idle. max-throughput: no actor starves
// the others.
caf::actor_system_config make_system_config();

// --- messages from links to the actors that own them; every link event passes through its owner's mailbox
// -----------------
struct LinkUp {
  std::shared_ptr<transport::Link> link;
};
struct LinkFrame {
  std::shared_ptr<transport::Link> link;
  ControlMessage message;
};
struct LinkPing {  // answered with link->pong(id) when the owner gets to it
  std::shared_ptr<transport::Link> link;
  std::uint64_t id = 0;
};
struct LinkDown {
  std::shared_ptr<transport::Link> link;
  Error why;
};

// Callbacks that put everything into `owner`'s mailbox. Frames that cannot be parsed close the link.
transport::LinkCallbacks callbacks_to(caf::actor owner);

// Interval and deadline of pings, shares of the detection budget of 2 s.
transport::LinkOptions link_options();
// What a process may take to load, open its devices and measure itself on a machine that has much else to do.
constexpr Duration kStartTime = seconds(60);

}  // namespace kintsugi::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::LinkUp)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::LinkFrame)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::LinkPing)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::LinkDown)
