// The page: pictures as inline SVG, no script, nothing fetched.
#include <fmt/format.h>

#include <algorithm>

#include "sim/report/report.hpp"

namespace kintsugi::sim {

namespace {

constexpr double kWidth = 880, kLeft = 230, kRow = 22;

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '&')
      out += "&amp;";
    else if (c == '"')
      out += "&quot;";
    else
      out += c;
  }
  return out;
}

struct Bar {
  std::string name;
  double value = 0;
  std::string text;
};

// Horizontal bars, the longest as wide as the picture.
std::string bars(const std::vector<Bar>& rows, double most) {
  const double height = kRow * static_cast<double>(rows.size()) + 8;
  std::string svg = fmt::format("<svg viewBox='0 0 {} {}' role='img'>", kWidth, height);
  double y = 4;
  for (const Bar& row : rows) {
    const double width = most > 0 ? std::max(0.0, row.value) / most * (kWidth - kLeft - 130) : 0;
    svg += fmt::format(
        "<text x='{}' y='{}' text-anchor='end'>{}</text><rect x='{}' y='{}' width='{:.2f}' height='15'/>"
        "<text x='{:.2f}' y='{}'>{}</text>",
        kLeft - 8, y + 12, escaped(row.name), kLeft, y, width, kLeft + width + 6, y + 12, escaped(row.text));
    y += kRow;
  }
  return svg + "</svg>";
}

std::string timeline(const FleetOutcome& o) {
  constexpr double kHeight = 180, kTop = 10, kBottom = 150;
  std::uint64_t least = o.in_job_ranks, most = o.in_job_ranks;
  for (const RanksInService& r : o.in_service) {
    least = std::min(least, r.ranks);
    most = std::max(most, r.ranks);
  }
  const double span = std::max<double>(1, static_cast<double>(most - least));
  const auto x = [&](double at) { return 70 + at / o.wall * (kWidth - 90); };
  const auto y = [&](std::uint64_t ranks) {
    return kBottom - static_cast<double>(ranks - least) / span * (kBottom - kTop);
  };
  std::string path;
  double last = y(o.in_job_ranks);
  for (const RanksInService& r : o.in_service) {
    path += fmt::format("{}{:.1f},{:.1f} {:.1f},{:.1f} ", path.empty() ? "" : "", x(r.at), last, x(r.at), y(r.ranks));
    last = y(r.ranks);
  }
  path += fmt::format("{:.1f},{:.1f}", x(o.wall), last);
  return fmt::format(
      "<svg viewBox='0 0 {} {}' role='img'><polyline points='{}'/><text x='4' y='{}'>{}</text><text x='4' "
      "y='{}'>{}</text>"
      "<text x='70' y='172'>0</text><text x='{}' y='172' text-anchor='end'>{:.1f} days</text></svg>",
      kWidth, kHeight, path, kTop + 10, most, kBottom, least, kWidth - 20, o.wall / 86'400);
}

std::string losses(const Outcome& o) {
  std::vector<Bar> rows;
  double most = 0;
  for (const auto& [cause, loss] : o.lost) {
    if (loss.seconds <= 0) continue;
    rows.push_back({cause, loss.seconds, fmt::format("{:.0f} s, {:.3f} %", loss.seconds, loss.seconds / o.wall * 100)});
    most = std::max(most, loss.seconds);
  }
  std::stable_sort(rows.begin(), rows.end(), [](const Bar& a, const Bar& b) { return a.value > b.value; });
  return bars(rows, most);
}

std::string recoveries(const Outcome& o) {
  constexpr double kEdges[] = {0, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 1e18};
  std::vector<Bar> rows;
  double most = 0;
  for (std::size_t i = 0; i + 1 < std::size(kEdges); ++i) {
    const auto count = std::count_if(o.recovery.begin(), o.recovery.end(),
                                     [&](double r) { return r >= kEdges[i] && r < kEdges[i + 1]; });
    const std::string name = i + 2 == std::size(kEdges) ? fmt::format("{} s and more", kEdges[i])
                                                        : fmt::format("{} to {} s", kEdges[i], kEdges[i + 1]);
    rows.push_back({name, static_cast<double>(count), fmt::format("{}", count)});
    most = std::max(most, static_cast<double>(count));
  }
  return bars(rows, most);
}

std::string policies(const FleetReport& r) {
  std::vector<Bar> rows{{"kintsugi", r.ours.goodput_in_job(), ""}};
  for (const Outcome& other : r.others) rows.push_back({other.policy, other.goodput_in_job(), ""});
  std::string text;
  rows[0].text = fmt::format("{} in job, {} provisioned", percent(r.ours.goodput_in_job()), percent(r.ours.goodput()));
  for (std::size_t i = 0; i < r.others.size(); ++i) {
    const Outcome& o = r.others[i];
    rows[i + 1].text = fmt::format("{}, {}", percent(o.goodput_in_job()), percent(o.goodput()));
    text += fmt::format("<li>{}: {}</li>", escaped(o.policy), escaped(o.assumptions));
  }
  return bars(rows, 1.6) + "<ul>" + text + "</ul>";
}

std::string table(const FleetReport& r) {
  if (r.sweep.empty()) {
    return "<p>Not made. The goodput above holds for its parameters alone: <code>--table DURATION</code> shows how "
           "much it "
           "depends on them.</p>";
  }
  std::string html = fmt::format(
      "<p>Runs of {:.1f} days each; goodput in job / of all provisioned.</p><table><tr>"
      "<th>spares</th><th>hang detection</th>",
      r.sweep_duration / 86'400);
  for (const double rebuild : kRebuilds) html += fmt::format("<th>rebuild {} s</th>", rebuild);
  for (std::size_t i = 0; i < r.sweep.size(); ++i) {
    const SweepCell& c = r.sweep[i];
    if (i % std::size(kRebuilds) == 0) {
      html += fmt::format("</tr><tr><td>{} %</td><td>{} s</td>", c.spares * 100, c.hang_detection);
    }
    html += fmt::format("<td>{} / {}</td>", percent(c.goodput_in_job), percent(c.goodput));
  }
  return html + "</tr></table>";
}

}  // namespace

std::string to_html(const FleetReport& r) {
  const FleetOutcome& o = r.ours;
  const PolicyFigures& p = r.scenario->policy;
  std::string html = "<!doctype html><html lang='en'><head><meta charset='utf-8'><title>" + escaped(r.scenario->name) +
                     ", simulated</title><style>body{font:15px/1.5 sans-serif;max-width:920px;margin:2em "
                     "auto;padding:0 1em;color:#222;"
                     "background:#fff}svg{width:100%;font-size:12px}rect{fill:#3b6ea5}polyline{fill:none;stroke:#"
                     "3b6ea5;stroke-width:1}"
                     "table{border-collapse:collapse}td,th{border:1px solid #ccc;padding:3px "
                     "8px;text-align:right}.note{background:#fff3c4;"
                     "padding:.5em 1em}</style></head><body>";
  html += fmt::format(
      "<h1>{}</h1><p class='note'><b>Simulated.</b> No accelerator ran. The job machine and the planner are "
      "the production ones; how long things take is a model.</p>",
      escaped(r.scenario->name));
  html += fmt::format(
      "<p>{} ranks in the job, {} provisioned, {:.1f} days. {} faults, {} of them where nothing of the job was. Step "
      "{:.3f} s "
      "without faults. Communicator rebuild {} s, detection {} s of an end and {} s of a hang, {} spares, {} copies of "
      "state.</p>",
      o.in_job_ranks, o.provisioned_ranks, o.wall / 86'400, o.faults, o.idle_faults, o.step_seconds, p.rebuild,
      p.process_detection, p.hang_detection, r.scenario->cluster.spares, p.replicas);
  html += fmt::format(
      "<p>Goodput {} for each GPU in the job, {} for each one provisioned. Returns to a durable checkpoint: {}."
      "</p><h2>Ranks in service</h2>{}",
      percent(o.goodput_in_job()), percent(o.goodput()), o.returns, timeline(o));
  html += "<h2>Time lost, by cause</h2>" + losses(o) + "<h2>From fault to next commit</h2>" + recoveries(o) +
          "<h2>Policies, under the same faults</h2>" + policies(r) + "<h2>What the goodput depends on</h2>" + table(r);
  html += fmt::format("<p>Seed {}, event hash {:016x}, {} machine steps, {} plans. {}</p></body></html>\n", r.seed,
                      o.event_hash, o.machine_steps, o.plans, escaped(r.version));
  return html;
}

}  // namespace kintsugi::sim
