#include "cli/progress.hpp"
#include "base/tell.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>

namespace kintsugi::cli {

namespace {
constexpr Duration kPlainInterval = seconds(1);
constexpr Duration kRewriteInterval = milliseconds(100);
}  // namespace

std::string format_time_left(double seconds) {
  const auto s = static_cast<std::int64_t>(std::ceil(seconds));
  if (s < 60) return fmt::format("{} s", s);
  if (s < 3600) return fmt::format("{}:{:02}", s / 60, s % 60);
  return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
}

ProgressView::ProgressView() : terminal_(::isatty(STDERR_FILENO) == 1) {}

void ProgressView::rewrite(const std::string& line) {
  winsize size{};
  const std::size_t columns = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
  tell("\r\x1b[K{}", line.substr(0, columns - 1));
  std::fflush(stderr);
  line_open_ = true;
}

void ProgressView::show(schemas::Progress::Reader p) {
  if (p.getText().size() > 0) {
    finish();
    tell("{}\n", p.getText().cStr());
    return;
  }
  const Instant now = clock_.now();
  const bool first = first_step_ == 0;
  if (first) {
    first_step_ = p.getStep();
    first_at_ = now;
  }
  const bool last = p.getStep() == p.getSteps();
  if (!first && !last && now - last_at_ < (terminal_ ? kRewriteInterval : kPlainInterval)) return;
  last_at_ = now;
  // From the pace seen so far; the first step tells nothing of it yet.
  std::string left;
  if (!first && !last) {
    const double pace = (now - first_at_).seconds() / static_cast<double>(p.getStep() - first_step_);
    left = ", " + format_time_left(pace * static_cast<double>(p.getSteps() - p.getStep())) + " left";
  }
  const std::string line =
      fmt::format("step {}/{}  loss {:.4f}  {:.0f} tokens/s  {} rank{}{}", p.getStep(), p.getSteps(), p.getLoss(),
                  p.getTokensPerSecond(), p.getRanks(), p.getRanks() == 1 ? "" : "s", left);
  if (terminal_)
    rewrite(line);
  else
    tell("{}\n", line);
}

void ProgressView::finish() {
  if (line_open_) tell("\n");
  line_open_ = false;
}

}  // namespace kintsugi::cli
