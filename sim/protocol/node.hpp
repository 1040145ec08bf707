// A node process: its link to the supervisor and whom it serves (actors/node.cpp), the job's memory and ranks on it
// (actors/node_job.cpp, rank_supervisor.cpp), and what its ranks have said (spoken.cpp).
#pragma once

#include <map>
#include <memory>
#include <optional>

#include "engine/control/allegiance.hpp"
#include "sim/protocol/context.hpp"

namespace kintsugi::sim::protocol {

struct NodeOptions {
  std::string host, rack;
  std::uint32_t slots = 1;
  Incarnation incarnation;
};

class Node final : public LinkUser {
 public:
  // `dial`: a link to whoever supervises now; empty: nobody answers.
  using Dial = std::function<std::optional<LinkId>(Node& self)>;
  Node(const Context& context, NodeOptions options, Pid pid, Dial dial);

  void begin() { dial_again(); }
  Pid pid() const { return pid_; }
  NodeId number() const { return allegiance_.number(); }
  bool has_ended() const { return ending_.has_value(); }
  const NodeOptions& options() const { return options_; }
  // All ranks that run here.
  std::vector<RankId> ranks() const;

  void on_link(LinkId link, Incarnation supervisor);
  void on_message(LinkId link, const Sent& message) override;
  void on_link_down(LinkId link, const std::string& why) override;
  // Its parent reads how a process of a rank ended.
  void on_rank_end(RankId rank, const std::string& why);

 private:
  struct Local {
    Pid pid = 0;
    LinkId link = 0;
    bool link_is_up = true, stopping = false, killed = false;
    std::string link_lost, kill_reason;
    std::optional<Message> hello, end;  // say::RankUp; the last of finished or failed in this generation
    std::optional<say::NeedSegments> need;
  };

  // --- the supervisor -------------------------------------------------------------------------------------------------
  void dial_again();
  void say_hello();
  void on_welcome(const say::Welcome& welcome);
  void start_afresh();
  void end(const std::string& why);
  void leave();
  void to_supervisor(Sent message);
  void up(Sent message);

  // --- the job --------------------------------------------------------------------------------------------------------
  void on_job_message(const Sent& message);
  void start_ranks(const say::StartRanks& start);
  void fence(const say::Fence& fence);
  void prepare(const say::Prepare& preparation);
  void resume(Generation generation);
  void kill(RankId rank, const std::string& why);
  void kill_now(RankId rank);
  void stop_job(const std::string& why);
  void end_job_if_done();
  void restate();
  void on_rank_message(RankId rank, const Sent& message);
  void on_need(RankId rank, const say::NeedSegments& need);
  std::vector<RankId> local_members() const;
  void fail(RankId rank, const Error& error);
  void gone(RankId rank, const std::string& why, bool expected);

  const Context& context_;
  const NodeOptions options_;
  const Pid pid_;
  const Dial dial_;
  std::optional<LinkId> link_;
  Incarnation linked_to_;
  Allegiance allegiance_;
  bool afresh_ = false;
  std::optional<std::string> ending_;

  bool has_job_ = false;
  bool stopping_ = false;
  Generation generation_;
  std::optional<Plan> plan_;
  bool in_force_ = false;
  JobMemory memory_;
  std::map<RankId, Local> ranks_;
  std::map<LinkId, RankId> rank_of_link_;
  std::vector<DecisionRecord> steps_;
};

}  // namespace kintsugi::sim::protocol
