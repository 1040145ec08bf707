#include "actors/takeover_listener.hpp"

#include <caf/event_based_actor.hpp>
#include <caf/send.hpp>

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

#include "actors/cluster_frames.hpp"
#include "actors/mirrors.hpp"
#include "actors/system.hpp"
#include "base/clock.hpp"

namespace kintsugi::actors {

struct TakeoverDeadline {
  std::uint64_t number = 0;
};

}  // namespace kintsugi::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(kintsugi::actors::TakeoverDeadline)

namespace kintsugi::actors {

namespace {

using transport::Link;

struct Outcome {
  Event done;
  GatheredJournal journal;  // written before `done`, read after
};

class TakeoverActor final : public caf::event_based_actor {
 public:
  TakeoverActor(caf::actor_config& config, std::shared_ptr<Outcome> outcome, Logger logger)
      : caf::event_based_actor(config), outcome_(std::move(outcome)), logger_(std::move(logger)) {}

  const char* name() const override { return "takeover"; }

  caf::behavior make_behavior() override {
    carry_out(machine_.start(clock_.now()));
    return {
        [this](const LinkUp& m) {
          links_[m.link.get()] = {++dialers_, m.link, {}};
        },
        [this](const LinkFrame& m) { on_frame(m); },
        [](const LinkPing& m) { m.link->pong(m.id); },
        [this](const LinkDown& m) { on_down(m.link.get()); },
        [this](const TakeoverDeadline& m) {
          if (m.number == deadline_) feed(takeover_event::DeadlinePassed{});
        },
    };
  }

  void on_exit() override {
    for (auto& [key, dialer] : links_) dialer.link->close("the supervisor starts");
    links_.clear();
  }

 private:
  struct Dialer {
    DialerId id = 0;
    std::shared_ptr<Link> link;
    JournalCopy copy;
  };

  void on_frame(const LinkFrame& m) {
    const auto at = links_.find(m.link.get());
    if (at == links_.end()) return;
    Dialer& dialer = at->second;
    const Result<void> read = guarded([&] {
      const auto in = m.message.get();
      if (in.which() == schemas::Message::NODE_HELLO) {
        feed(takeover_event::Came{dialer.id, read_hello(in.getNodeHello()).claim});
      } else if (in.which() == schemas::Message::JOURNAL_PIECE) {
        take_piece(dialer, read_journal_piece(in.getJournalPiece()));
      } else if (in.which() == schemas::Message::FOLLOW) {
        dialer.link->close("the supervisor takes over");  // whoever follows a job dials again
      } else if (dialer.link->peer().hello.role == transport::LinkRole::client) {
        say(dialer,
            refusal({ErrorAction::refuse, "this supervisor takes over and has not found its nodes yet; try again"}));
      }
    });
    if (!read) m.link->close(read.error().message);
  }

  void take_piece(Dialer& dialer, const JournalPiece& piece) {
    if (const Result<void> taken = dialer.copy.take(piece); !taken) return dialer.link->close(taken.error().message);
    if (piece.up_to == 0) return;
    const RestartState state = restart_state(dialer.copy.entries());
    takeover_event::CopyRead read{dialer.id, dialer.copy.stamp(), {}, state.tenures};
    for (const auto& [node, joined] : state.nodes) read.nodes.insert(joined.incarnation);
    copies_[dialer.id] = dialer.copy;
    feed(read);
  }

  void on_down(const Link* link) {
    const auto at = links_.find(link);
    if (at == links_.end()) return;
    const DialerId id = at->second.id;
    links_.erase(at);
    feed(takeover_event::Went{id});
  }

  void feed(const TakeoverEvent& event) { carry_out(machine_.step(event, clock_.now())); }

  void carry_out(const TakeoverEffects& effects) {
    for (const TakeoverEffect& effect : effects) std::visit([this](const auto& e) { carry_out(e); }, effect);
  }

  void carry_out(const takeover_effect::AskForCopy& e) {
    say(e.dialer, make_frame([](schemas::Message::Builder m) { m.setJournalWanted(); }));
  }
  void carry_out(const takeover_effect::Refuse& e) { say(e.dialer, refusal({ErrorAction::refuse, e.why})); }
  void carry_out(const takeover_effect::ArmDeadline& e) {
    const Duration left = e.at - clock_.now();
    delayed_send(this, std::chrono::nanoseconds(std::max<std::int64_t>(0, left.ns)), TakeoverDeadline{++deadline_});
  }
  void carry_out(const takeover_effect::GiveUp& e) {
    outcome_->done.fail({ErrorAction::refuse, e.why});
    quit();
  }

  // The tenures that the copy lacks come last, so that they are the newest.
  void carry_out(const takeover_effect::Take& e) {
    const JournalCopy& copy = copies_.at(e.dialer);
    GatheredJournal& out = outcome_->journal;
    out = {copy.cluster_id(), copy.stamp(), copy.entries(), e.least_epoch, e.absent};
    for (const Tenure& tenure : e.also_before) {
      out.entries.push_back({static_cast<std::int64_t>(tenure.incarnation.value),
                             journaled::Started{.epoch = tenure.epoch, .cluster_id = copy.cluster_id()}});
    }
    logger_.warning("the journal is gathered", {{"epoch", out.stamp.epoch}, {"entries", out.entries.size()}});
    outcome_->done.signal();
    quit();
  }

  void say(DialerId id, transport::Frame frame) {
    for (auto& [key, dialer] : links_) {
      if (dialer.id == id) return say(dialer, std::move(frame));
    }
  }
  void say(Dialer& dialer, transport::Frame frame) {
    if (const Result<void> sent = dialer.link->send(std::move(frame)); !sent) dialer.link->close(sent.error().message);
  }

  const std::shared_ptr<Outcome> outcome_;
  const Logger logger_;
  const SteadyClock clock_;
  Takeover machine_;
  std::map<const Link*, Dialer> links_;
  std::map<DialerId, JournalCopy> copies_;  // that are whole; few, as only a newer one is asked for
  DialerId dialers_ = 0;
  std::uint64_t deadline_ = 0;
};

}  // namespace

struct TakeoverListener::Impl {
  caf::actor_system_config config = make_system_config();
  caf::actor_system system{config};
  std::shared_ptr<Outcome> outcome = std::make_shared<Outcome>();
  caf::actor actor;
  std::unique_ptr<transport::LinkService> links;
  transport::ListenAddress address;

  ~Impl() {
    links.reset();
    if (actor) caf::anon_send_exit(actor, caf::exit_reason::user_shutdown);
    actor = nullptr;
  }
};

TakeoverListener::TakeoverListener(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TakeoverListener::~TakeoverListener() = default;

Result<std::unique_ptr<TakeoverListener>> TakeoverListener::start(TakeoverOptions options) {
  auto impl = std::make_unique<Impl>();
  impl->actor = caf::actor(impl->system.spawn<TakeoverActor>(impl->outcome, options.logger));
  impl->links = std::make_unique<transport::LinkService>(options.logger.with_component("link"));
  const caf::actor actor = impl->actor;
  transport::ListenRequest request{.address = options.address,
                                   .port = options.port,
                                   .identity = std::move(options.identity),
                                   .incarnation = Incarnation{static_cast<std::uint64_t>(wall_clock_ns())},
                                   .options = link_options(),
                                   .on_link = [actor](std::shared_ptr<Link> link) {
                                     caf::anon_send(actor, LinkUp{std::move(link)});
                                     return callbacks_to(actor);
                                   }};
  KINTSUGI_TRY_ASSIGN(impl->address, impl->links->listen(std::move(request)));
  return std::unique_ptr<TakeoverListener>(new TakeoverListener(std::move(impl)));
}

const transport::ListenAddress& TakeoverListener::address() const {
  return impl_->address;
}
const Event& TakeoverListener::done() const {
  return impl_->outcome->done;
}
GatheredJournal TakeoverListener::journal() const {
  return impl_->outcome->journal;
}

}  // namespace kintsugi::actors
