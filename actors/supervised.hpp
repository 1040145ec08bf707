// How every actor here is supervised (DESIGN 5). What others know of it, its address with the mailbox behind, is a *shell*
// that outlives what crashes; what works is a *body* in it, one for each incarnation. When a handler of that throws, the body is
// gone, and its parent decides (engine/control/supervision.hpp): a next one is made after a pause, meanwhile letters wait in order,
// or the parent fails itself. Only the letter in hand is lost (Akka, "Supervision": what a restart keeps). What a next
// incarnation must not lose (links, descriptors, facts) lies in an object that the shell keeps for it: its `Held`.
#pragma once

#include <caf/actor.hpp>
#include <caf/actor_system.hpp>
#include <caf/event_based_actor.hpp>
#include <caf/send.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "actors/actor_tree.hpp"
#include "base/clock.hpp"

namespace kintsugi::actors {

// An injected fault: the incarnation throws.
struct CrashNow {};

// How the incarnation before ended.
struct Crash {
  std::string why;
  bool letter_lost = false;  // it was handling one
};

// Where an actor is in the tree of its process.
struct Place {
  caf::actor_system* system = nullptr;
  ActorTree* tree = nullptr;  // outlives the actor
  std::string name;           // "rank_supervisor@3"
  caf::actor parent;          // none: it is the root
  ActorTree::Key parent_key = 0;
  // Of a root: its budget is spent, so the process must go. Any thread.
  std::function<void(const std::string& why)> on_spent = {};
  // See ActorTree::add.
  std::function<void()> interrupt = {};
};

// What an incarnation knows of itself.
struct Life {
  caf::event_based_actor* shell = nullptr;
  ActorTree* tree = nullptr;
  ActorTree::Key key = 0;
  std::uint32_t incarnation = 1;
  std::optional<Crash> before;  // none: it is the first
};

// Of one incarnation. Its thread is the shell's.
class Body {
 public:
  explicit Body(Life life) : life_(std::move(life)) {}
  virtual ~Body() = default;
  Body(const Body&) = delete;
  Body& operator=(const Body&) = delete;

  // Once. What it throws, here or in a handler, is its end.
  virtual caf::behavior make_behavior() = 0;
  // The actor ends for good; not called at a crash.
  virtual void on_end() {}

 protected:
  const Life& life() const { return life_; }
  caf::actor self() const { return {life_.shell}; }
  caf::actor_system& system() const { return life_.shell->system(); }
  template <class Letter>
  void send(const caf::actor& to, Letter&& letter) {
    life_.shell->send(to, std::forward<Letter>(letter));
  }
  template <class Letter>
  void send_self(Duration after, Letter&& letter) {
    life_.shell->delayed_send(life_.shell, std::chrono::nanoseconds(after.ns), std::forward<Letter>(letter));
  }
  void quit() { life_.shell->quit(); }
  void end_child(const caf::actor& other) { life_.shell->send_exit(other, caf::exit_reason::user_shutdown); }
  // Of a child.
  Place place(std::string name) const { return {&system(), life_.tree, std::move(name), self(), life_.key}; }

 private:
  const Life life_;
};

using MakeBody = std::function<std::unique_ptr<Body>(Life)>;

// `Works(Life, Held&)` is what works, again and again over the same `held`.
template <class Works, class Held>
MakeBody bodies_of(std::shared_ptr<Held> held) {
  return [held = std::move(held)](Life life) { return std::make_unique<Works>(std::move(life), *held); };
}

caf::actor spawn_supervised(Place place, MakeBody make);
// With a thread of its own, which it may block.
caf::actor spawn_detached(Place place, MakeBody make);

}  // namespace kintsugi::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::CrashNow)
