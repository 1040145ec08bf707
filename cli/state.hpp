// A supervisor's state directory, as the commands that hold one open it.
#pragma once

#include <memory>
#include <string>

#include "engine/telemetry/journal.hpp"

namespace kintsugi::cli {

std::string host_name();

// Takes the directory's lock for as long as the journal lives. Tells of a torn tail. Errors of Journal::open.
// `least_epoch`: of JournalStart.
Result<std::shared_ptr<Journal>> open_journal(const std::string& directory, std::uint32_t least_epoch = 1);

}  // namespace kintsugi::cli
