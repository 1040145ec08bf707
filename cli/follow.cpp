#include "cli/follow.hpp"
#include "base/tell.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

namespace kintsugi::cli {

namespace {

// A cancelled job has its own two seconds; past them there is nobody to wait for.
constexpr Duration kCancelGrace = milliseconds(1'500);
// One wish to end may come as two signals: timeout(1) sends one to its child and one to the group.
constexpr Duration kSameInterrupt = milliseconds(300);
// A child's death is news for the supervisor, too, which names it better: its word is waited for this long.
constexpr Duration kChildGrace = milliseconds(1'500);
constexpr Duration kRedialPause = milliseconds(250);

class JobFollower {
 public:
  JobFollower(Inbox& inbox, const FollowRequest& request) : inbox_(inbox), request_(request) {}

  JobEnd run() {
    while (!end_) {
      std::optional<InboxItem> item = inbox_.next(std::min(deadline_, redial_at_));
      if (item && request_.on_item) request_.on_item(*item);
      if (item)
        std::visit([this](auto& i) { on(i); }, *item);
      else if (redial_at_ < deadline_)
        redial();
      else
        end_ = *at_deadline_;
    }
    view_.finish();
    return *end_;
  }

 private:
  void on(Connected& up) {
    link_ = std::move(up.link);
    transport::Frame first = accepted_
                                 ? actors::make_frame([&](schemas::Message::Builder m) { m.initFollow().setJob(job_); })
                                 : submit_frame(request_.submission);
    if (const Result<void> sent = link_->send(std::move(first)); !sent && !accepted_) {
      end_ = JobEnd{kRefused, sent.error().message};
    }
  }

  void on(Disconnected& down) {
    link_ = nullptr;
    if (at_deadline_) {
      end_ = *at_deadline_;
    } else if (!accepted_ || !request_.dial_again) {
      end_ = JobEnd{kRefused, (accepted_ ? "the supervisor is gone, and the job with it: " : "") + down.why.message};
    } else {
      be_patient(down.why.message);
    }
  }

  void be_patient(const std::string& why) {
    const Instant now = SteadyClock().now();
    if (!lost_at_) {
      lost_at_ = now;
      view_.finish();
      tell("the supervisor is lost: {}; the job goes on without it for {} s, and it is dialed again\n", why,
           request_.patience.ns / seconds(1).ns);
    }
    redial_at_ = now + kRedialPause;
    if (now - *lost_at_ >= request_.patience) end_ = JobEnd{kRefused, "the supervisor did not come back: " + why};
  }

  void redial() {
    redial_at_ = kNoDeadline;
    request_.dial_again();
  }

  void on(ClusterEnded&) { end_ = JobEnd{kFailed, "the supervisor ended"}; }

  void on(ChildEnded& child) {
    if (!request_.is_deserted || !request_.is_deserted() || at_deadline_) return;
    wait_until(kChildGrace, {kFailed, child.name + " " + child.end.text()});
  }

  void on(Interrupted&) {
    const Instant now = SteadyClock().now();
    if (interrupted_ && now - interrupted_at_ < kSameInterrupt) return;
    if (interrupted_) {
      end_ = JobEnd{kInterrupted, "interrupted again: everything is ended at once", true};
      return;
    }
    interrupted_ = true;
    interrupted_at_ = now;
    view_.finish();
    tell("interrupted: ending the job\n");
    if (lost_at_) {
      end_ =
          JobEnd{kInterrupted, fmt::format("there is no supervisor to end job {}; once there is, `kintsugi cancel {}` "
                                           "does",
                                           job_, job_)};
      return;
    }
    if (!link_ || !accepted_ || !request_.submission.follow) {
      end_ = JobEnd{kInterrupted, ""};
      return;
    }
    static_cast<void>(
        link_->send(actors::make_frame([&](schemas::Message::Builder m) { m.initCancel().setJob(job_); })));
    wait_until(kCancelGrace, {kInterrupted, "the job did not end in time"});
  }

  void on(actors::ControlMessage& message) {
    const Result<void> read = actors::guarded([&] { on_message(message.get()); });
    if (!read) end_ = JobEnd{kFailed, read.error().message};
  }

  void on_message(schemas::Message::Reader m) {
    switch (m.which()) {
      case schemas::Message::ACCEPTED:
        if (std::exchange(lost_at_, std::nullopt)) tell("the supervisor is back\n");
        if (accepted_) return;  // of the cancellation, or followed again
        accepted_ = true;
        job_ = m.getAccepted().getJob();
        if (!request_.submission.follow) {
          fmt::print("job {} was accepted; `kintsugi status` shows it, `kintsugi cancel {}` ends it\n", job_, job_);
          end_ = JobEnd{};
        }
        return;
      case schemas::Message::REFUSED: {
        const auto action = static_cast<ErrorAction>(m.getRefused().getAction());
        const int code = action == ErrorAction::tell_user   ? kUsage
                         : action == ErrorAction::cancelled ? kInterrupted
                                                            : kRefused;
        end_ = JobEnd{code, m.getRefused().getMessage().cStr()};
        return;
      }
      case schemas::Message::PROGRESS: return view_.show(m.getProgress());
      case schemas::Message::ENDED: return on_ended(m.getEnded());
      default: return;  // of a newer supervisor
    }
  }

  void on_ended(schemas::Ended::Reader ended) {
    view_.finish();
    JobEnd end{interrupted_ ? kInterrupted : ended.getExitCode(), ended.getMessage().cStr()};
    const std::string report = ended.getReport().cStr();
    if (!report.empty() && !request_.report_file.empty()) {
      if (const Result<void> wrote = write_to(request_.report_file, std::as_bytes(std::span(report))); !wrote) {
        tell("kintsugi: {}\n", wrote.error().message);
        if (end.exit_code == kDone) end.exit_code = kFailed;
      }
    }
    if (report.empty() && end.exit_code == kDone && !request_.report_file.empty()) {
      tell("kintsugi: the job is done, but its report was lost with the supervisor that kept it\n");
    }
    if (end.exit_code == kDone) summarise(report);
    end_ = std::move(end);
  }

  void summarise(const std::string& report) const {
    const nlohmann::json json = nlohmann::json::parse(report, nullptr, false);
    if (!json.is_object() || json["steps"].empty()) return;
    const auto& last = json["steps"].back();
    fmt::print("{} steps, loss {}, {:.0f} tokens/s, digest {}\n", last["step"].get<std::uint64_t>(),
               last["loss"].is_number() ? fmt::format("{:.4f}", last["loss"].get<double>()) : "not finite",
               json["tokens_per_second"].get<double>(), json["final_digest"].get<std::string>());
    if (!request_.submission.save_directory.empty()) fmt::print("saved in {}\n", request_.submission.save_directory);
    if (!request_.report_file.empty()) fmt::print("report in {}\n", request_.report_file);
  }

  void wait_until(Duration grace, JobEnd otherwise) {
    deadline_ = SteadyClock().now() + grace;
    at_deadline_ = std::move(otherwise);
  }

  Inbox& inbox_;
  const FollowRequest& request_;
  ProgressView view_;
  std::shared_ptr<transport::Link> link_;
  std::uint32_t job_ = 0;
  bool accepted_ = false, interrupted_ = false;
  Instant interrupted_at_, deadline_ = kNoDeadline;
  Instant redial_at_ = kNoDeadline;
  std::optional<Instant> lost_at_;     // the supervisor, and it is not back
  std::optional<JobEnd> at_deadline_;  // what it is when the deadline passes
  std::optional<JobEnd> end_;
};

}  // namespace

JobEnd follow_job(Inbox& inbox, const FollowRequest& request) {
  return JobFollower(inbox, request).run();
}

}  // namespace kintsugi::cli
