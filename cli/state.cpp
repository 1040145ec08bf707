#include "cli/state.hpp"

#include <sys/random.h>
#include <unistd.h>

#include "base/assert.hpp"
#include "base/clock.hpp"
#include "base/tell.hpp"
#include "cli/command.hpp"

namespace kintsugi::cli {

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "localhost";
}

Result<std::shared_ptr<Journal>> open_journal(const std::string& directory, std::uint32_t least_epoch) {
  JournalStart start{.wall_ns = wall_clock_ns(),
                     .host = host_name(),
                     .pid = static_cast<std::uint32_t>(::getpid()),
                     .version = kintsugi_version(),
                     .least_epoch = least_epoch};
  KINTSUGI_ASSERT(::getrandom(&start.new_cluster_id, sizeof start.new_cluster_id, 0) ==
                  static_cast<ssize_t>(sizeof start.new_cluster_id));
  Result<Journal> journal = Journal::open(directory, start);
  if (journal && journal->dropped_bytes() != 0) {
    tell("kintsugi: {}/journal: dropped a torn tail of {} bytes, which nobody was promised\n", directory,
         journal->dropped_bytes());
  }
  if (!journal) return journal.error();
  return std::make_shared<Journal>(std::move(*journal));
}

}  // namespace kintsugi::cli
