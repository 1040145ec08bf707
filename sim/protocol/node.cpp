#include "sim/protocol/node.hpp"

#include <utility>

#include "sim/protocol/rank.hpp"

namespace kintsugi::sim::protocol {

namespace {
constexpr Duration kRedialPause = milliseconds(250);
constexpr Duration kLeaveGrace = milliseconds(1'500);
constexpr LinkTimes kInside{{20'000}, {200'000}};  // between a node and its ranks
}  // namespace

Node::Node(const Context& context, NodeOptions options, Pid pid, Dial dial)
    : context_(context), options_(std::move(options)), pid_(pid), dial_(std::move(dial)) {}

std::vector<RankId> Node::ranks() const {
  std::vector<RankId> all;
  for (const auto& [rank, local] : ranks_) all.push_back(rank);
  return all;
}

// --- the supervisor ---------------------------------------------------------------------------------------------------
void Node::dial_again() {
  if (ending_ || link_) return;
  if (allegiance_.has_served() && allegiance_.time_left(context_.processes.now()) <= Duration{}) {
    return end(allegiance_.last_words());
  }
  if (dial_(*this)) return;
  context_.post(pid_, kRedialPause, kTimer, [this] { dial_again(); });
}

void Node::on_link(LinkId link, Incarnation supervisor) {
  link_ = link;
  linked_to_ = supervisor;
  if (ending_) return context_.links.close(link, pid_, *ending_);
  if (allegiance_.was_given_up_by(supervisor)) start_afresh();
  if (!afresh_) say_hello();
}

void Node::on_link_down(LinkId link, const std::string& why) {
  if (const auto at = rank_of_link_.find(link); at != rank_of_link_.end()) {
    const auto local = ranks_.find(at->second);
    if (local == ranks_.end()) return;
    local->second.link_is_up = false;
    if (local->second.stopping) return;
    local->second.link_lost = why;
    constexpr Duration kLastWords = milliseconds(200);
    context_.post(pid_, kLastWords, kTimer, [this, rank = at->second] { kill_now(rank); });
    return;
  }
  if (link_ != link) return;
  link_.reset();
  if (ending_) return;
  static_cast<void>(allegiance_.lose(why, context_.processes.now()));
  context_.post(pid_, kRedialPause, kTimer, [this] { dial_again(); });
}

void Node::say_hello() {
  to_supervisor(message(say::NodeHello{options_.incarnation, allegiance_.number(), options_.slots, options_.host,
                                       options_.rack, has_job_}));
}

void Node::on_welcome(const say::Welcome& welcome) {
  const Result<void> served = allegiance_.serve({1, welcome.epoch, welcome.supervisor}, welcome.node);
  if (!served) {
    if (served.error().action == ErrorAction::retry) start_afresh();
    context_.links.close(*link_, pid_, served.error().message);
    link_.reset();
    static_cast<void>(allegiance_.lose(served.error().message, context_.processes.now()));
    context_.post(pid_, kRedialPause, kTimer, [this] { dial_again(); });
    return;
  }
  if (has_job_) restate();
}

void Node::start_afresh() {
  allegiance_.forget_number();
  afresh_ = has_job_;
  stop_job("its node was taken for lost");
}

void Node::end(const std::string& why) {
  if (ending_) return;
  ending_ = why;
  if (!has_job_) return leave();
  stop_job(why);
  context_.post(pid_, kLeaveGrace, kTimer, [this] { leave(); });
}

void Node::leave() {
  if (link_) context_.links.close(*link_, pid_, *ending_);
  context_.end_process(pid_, *ending_);
}

void Node::to_supervisor(Sent sent) {
  const std::uint64_t tag = sent->what.index();
  if (link_) context_.links.send(*link_, pid_, tag, std::move(sent));
}

// Without a supervisor nobody is told: what still matters is restated to the next one.
void Node::up(Sent sent) {
  if (allegiance_.is_welcome()) to_supervisor(std::move(sent));
}

void Node::on_message(LinkId link, const Sent& sent) {
  if (const auto at = rank_of_link_.find(link); at != rank_of_link_.end()) return on_rank_message(at->second, sent);
  if (link != link_) return;
  if (const auto* welcome = std::get_if<say::Welcome>(&sent->what)) return on_welcome(*welcome);
  if (const auto* leave_now = std::get_if<say::Leave>(&sent->what)) return end(leave_now->why);
  if (std::holds_alternative<say::StartRanks>(sent->what) && !ending_) has_job_ = true;
  if (has_job_) on_job_message(sent);
}

// --- the job ----------------------------------------------------------------------------------------------------------
void Node::on_job_message(const Sent& sent) {
  bool is_for_all = false;
  if (const auto* start = std::get_if<say::StartRanks>(&sent->what)) return start_ranks(*start);
  if (const auto* kill_rank = std::get_if<say::KillRank>(&sent->what)) return kill(kill_rank->rank, kill_rank->why);
  if (const auto* stop = std::get_if<say::Stop>(&sent->what)) return stop_job(stop->why);
  if (const auto* fence_now = std::get_if<say::Fence>(&sent->what)) {
    if (fence_now->generation <= generation_) return;  // of a lower epoch, or overtaken
    fence(*fence_now);
    is_for_all = true;
  }
  if (const auto* preparation = std::get_if<say::Prepare>(&sent->what)) prepare(*preparation);
  if (const auto* go_on = std::get_if<say::Resume>(&sent->what)) resume(go_on->generation);
  for (auto& [rank, local] : ranks_) {
    if (is_for_all || (plan_ && plan_->has(rank))) context_.links.send(local.link, pid_, sent->what.index(), sent);
  }
}

void Node::start_ranks(const say::StartRanks& start) {
  if (stopping_) return;
  for (const RankId rank : start.ranks) {
    Rank& process = context_.start_rank(rank, context_.processes.machine_of(pid_));
    Local& local = ranks_[rank];
    local.pid = process.pid();
    local.link = context_.links.open(pid_, *this, local.pid, process, kInside);
    rank_of_link_[local.link] = rank;
    context_.post(local.pid, context_.process_start(), kStarted,
                  [&process, link = local.link] { process.begin(link); });
  }
}

void Node::fence(const say::Fence& wanted) {
  generation_ = wanted.generation;
  plan_.reset();
  in_force_ = false;
  for (auto& [rank, local] : ranks_) {
    local.end.reset();
    local.need.reset();
  }
  up(message(say::NodeReported{generation_, memory_.left_behind([&](RankId r) { return ranks_.contains(r); })}));
}

std::vector<RankId> Node::local_members() const {
  std::vector<RankId> members;
  for (const auto& [rank, local] : ranks_) {
    if (plan_->has(rank)) members.push_back(rank);
  }
  return members;
}

void Node::prepare(const say::Prepare& preparation) {
  if (preparation.plan.generation != generation_) return;  // overtaken by a fence
  allegiance_.set_limit(kJob, seconds(context_.job.config.resilience.orphan_limit));
  plan_ = preparation.plan;
}

// Every member holds what the plan says: what no plan asks for any more may go.
void Node::resume(Generation generation) {
  if (!plan_ || generation != generation_) return;
  in_force_ = true;
  memory_.keep_only(*plan_);
}

void Node::kill(RankId rank, const std::string& why) {
  const auto at = ranks_.find(rank);
  if (at == ranks_.end()) return;
  at->second.link_lost = why;
  kill_now(rank);
}

void Node::kill_now(RankId rank) {
  const auto at = ranks_.find(rank);
  if (at == ranks_.end()) return;
  Local& local = at->second;
  if (!local.stopping) local.kill_reason = "was killed by its node: " + local.link_lost;
  local.killed = true;
  if (context_.processes.is_alive(local.pid)) context_.end_process(local.pid, "was killed by signal 9 (Killed)");
}

void Node::stop_job(const std::string& why) {
  if (!has_job_) return;
  stopping_ = true;
  constexpr Duration kStopGrace = milliseconds(1'000);
  for (auto& [rank, local] : ranks_) {
    if (std::exchange(local.stopping, true)) continue;
    context_.links.send(local.link, pid_, 0, message(say::Stop{why}));
    context_.post(pid_, kStopGrace, kTimer, [this, r = rank] { kill_now(r); });
  }
  end_job_if_done();
}

void Node::end_job_if_done() {
  if (!stopping_ || !ranks_.empty()) return;
  has_job_ = stopping_ = in_force_ = false;
  generation_ = {};
  plan_.reset();
  memory_.clear();
  steps_.clear();
  allegiance_.forget_limit(kJob);
  if (ending_) return leave();
  if (std::exchange(afresh_, false) && link_) say_hello();
}

// In this order: a supervisor that knows the state decides, and then it must know the steps.
void Node::restate() {
  up(message(say::StepHistory{steps_}));
  say::JobState state{generation_, in_force_ ? plan_ : std::nullopt, {}, {}};
  for (const auto& [rank, local] : ranks_) state.living.push_back({rank, local.hello ? "simulated" : ""});
  for (const RankReport& left : memory_.left_behind([&](RankId r) { return ranks_.contains(r); })) {
    state.gone.push_back(left.rank);
  }
  up(message(std::move(state)));
  for (const auto& [rank, local] : ranks_) {
    if (local.end) up(std::make_shared<const Message>(*local.end));
  }
}

void Node::on_rank_message(RankId rank, const Sent& sent) {
  const auto at = ranks_.find(rank);
  if (at == ranks_.end()) return;
  if (const auto* need = std::get_if<say::NeedSegments>(&sent->what)) return on_need(rank, *need);
  if (std::holds_alternative<say::RankUp>(sent->what)) at->second.hello = *sent;
  if (std::holds_alternative<say::Finished>(sent->what) || std::holds_alternative<say::Failed>(sent->what)) {
    at->second.end = *sent;
  }
  if (const auto* step = std::get_if<say::StepDone>(&sent->what)) steps_.push_back(step->record);
  up(sent);
}

// Once all local members have said what they need, each gets its memory.
void Node::on_need(RankId rank, const say::NeedSegments& need) {
  if (!plan_ || need.generation != generation_) return;  // overtaken
  ranks_.at(rank).need = need;
  const std::vector<RankId> members = local_members();
  for (const RankId member : members) {
    if (!ranks_.at(member).need) return;
  }
  for (const RankId member : members) {
    say::Segments segments{generation_, memory_.board(member), {}};
    for (const auto& [shard, from] : ranks_.at(member).need->copies) {
      if (from) {
        const Result<void> taken = memory_.take_over(member, shard, *from);
        if (!taken) return fail(rank, taken.error());
      } else {
        memory_.create(member, shard);
      }
      segments.copies[shard] = memory_.copy(member, shard);
    }
    context_.links.send(ranks_.at(member).link, pid_, member.value, message(std::move(segments)));
  }
}

void Node::fail(RankId rank, const Error& error) {
  up(message(say::Failed{rank, generation_, error}));
}

void Node::on_rank_end(RankId rank, const std::string& why) {
  const auto at = ranks_.find(rank);
  if (at == ranks_.end()) return;
  const Local& local = at->second;
  const bool signalled = why.starts_with("was killed");
  const bool expected = local.stopping && (!signalled || local.killed);
  gone(rank, local.kill_reason.empty() ? why : local.kill_reason, expected);
}

void Node::gone(RankId rank, const std::string& why, bool expected) {
  ranks_.erase(rank);
  up(message(say::RankDown{rank, why, expected}));
  end_job_if_done();
}

}  // namespace kintsugi::sim::protocol
