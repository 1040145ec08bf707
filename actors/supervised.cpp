#include "actors/supervised.hpp"

#include <exception>
#include <stdexcept>
#include <variant>
#include <vector>

#include "base/assert.hpp"
#include "engine/control/supervision.hpp"

namespace kintsugi::actors {

namespace {
struct ChildCrashed {
  std::string name;
  caf::actor who;
  std::string why;
};
struct ChildEnded {
  std::string name;
};
struct BeReborn {
  std::uint32_t incarnation = 0;
};
}  // namespace

}  // namespace kintsugi::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::ChildCrashed)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::ChildEnded)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::BeReborn)

namespace kintsugi::actors {

namespace {

class Shell final : public caf::event_based_actor {
 public:
  Shell(caf::actor_config& config, std::shared_ptr<Place> place, MakeBody make)
      : caf::event_based_actor(config), place_(std::move(*place)), make_(std::move(make)) {}

  const char* name() const override { return place_.name.c_str(); }

  caf::behavior make_behavior() override {
    key_ = place_.tree->add(place_.name, place_.parent_key, this, std::exchange(place_.interrupt, nullptr));
    if (place_.parent) {
      monitor(place_.parent);
      set_down_handler([this](caf::down_msg&) {
        place_.parent = nullptr;
        if (!body_) quit();  // nobody will make a next one
      });
    }
    set_default_handler([this](caf::scheduled_actor*, caf::message_view& letter) { return deliver(letter); });
    begin(1, std::nullopt);
    return {
        [this](const CrashNow&) {
          if (body_) attempt(false, [] { throw std::runtime_error("an injected crash"); });
        },
        [this](const BeReborn& m) {
          if (body_) return;
          place_.tree->restarted(key_, m.incarnation, crash_.why);
          begin(m.incarnation, crash_);
        },
        [this](const ChildCrashed& m) { on_crash_of(m); },
        [this](const ChildEnded& m) { children_.ended(m.name); },
    };
  }

  void on_exit() override {
    if (body_) body_->on_end();
    handlers_ = {};
    body_.reset();
    make_ = nullptr;
    down_.clear();
    place_.tree->remove(key_);
    if (place_.parent) caf::anon_send(place_.parent, ChildEnded{place_.name});
    place_.parent = nullptr;
  }

 private:
  void begin(std::uint32_t incarnation, std::optional<Crash> before) {
    attempt(false, [&] {
      body_ = make_(Life{this, place_.tree, key_, incarnation, std::move(before)});
      handlers_ = body_->make_behavior();
    });
    if (!body_) return;
    for (const ChildCrashed& child : std::exchange(down_, {})) {
      send(child.who, BeReborn{children_.revive(child.name)});
    }
  }

  // Runs on as the shell's default: every letter that is not the shell's own.
  caf::result<caf::message> deliver(caf::message_view& letter) {
    if (!body_) return caf::skip;  // it waits, in its order
    caf::message content = letter.move_content_to_message();
    attempt(true, [&] {
      if (!handlers_(content)) place_.tree->logger().warning("a letter that nobody reads", {{"actor", place_.name}});
    });
    return caf::delegated<caf::message>();
  }

  template <class Work>
  void attempt(bool letter_in_hand, Work work) {
    try {
      return work();
    } catch (const std::exception& e) {
      crash_ = {e.what(), letter_in_hand};
    } catch (...) {
      crash_ = {"something was thrown that says nothing", letter_in_hand};
    }
    crashed();
  }

  void crashed() {
    handlers_ = {};
    body_.reset();
    const ChildCrashed told{place_.name, this, crash_.why};
    if (place_.parent) return send(place_.parent, told);
    if (place_.parent_key != 0) return quit();  // its parent has ended
    on_crash_of(told);                          // a root's shell is its own parent
  }

  void on_crash_of(const ChildCrashed& m) {
    const Supervision::Remedy remedy = children_.crashed(m.name, m.why, clock_.now());
    if (const auto* restart = std::get_if<Supervision::Restart>(&remedy)) {
      place_.tree->logger().warning("an actor crashed; it is restarted", {{"actor", m.name},
                                                                          {"why", m.why},
                                                                          {"incarnation", restart->incarnation},
                                                                          {"after_ms", restart->after.ms()}});
      delayed_send(m.who, std::chrono::nanoseconds(restart->after.ns), BeReborn{restart->incarnation});
      return;
    }
    const std::string& why = std::get<Supervision::Escalate>(remedy).why;
    place_.tree->logger().error("an actor crashes again and again; its parent fails", {{"why", why}});
    if (m.who.address() == address()) return place_.on_spent(why);
    down_.push_back(m);
    if (!body_) return;
    crash_ = {why, false};
    crashed();
  }

  Place place_;
  MakeBody make_;
  ActorTree::Key key_ = 0;
  const SteadyClock clock_;
  Supervision children_;
  std::vector<ChildCrashed> down_;  // until the next incarnation of this actor, for which their budget was spent
  Crash crash_;                     // of the incarnation before
  std::unique_ptr<Body> body_;      // none: between two
  caf::behavior handlers_;          // its
};

}  // namespace

caf::actor spawn_supervised(Place place, MakeBody make) {
  caf::actor_system& system = *place.system;
  return system.spawn<Shell>(std::make_shared<Place>(std::move(place)), std::move(make));
}

caf::actor spawn_detached(Place place, MakeBody make) {
  caf::actor_system& system = *place.system;
  return system.spawn<Shell, caf::detached>(std::make_shared<Place>(std::move(place)), std::move(make));
}

}  // namespace kintsugi::actors
