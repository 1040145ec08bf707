// For commands that only compute: SIGINT, SIGTERM and SIGHUP become a flag that they look at.
#pragma once

namespace kintsugi::cli {

void catch_interrupts();
bool interrupted();

}  // namespace kintsugi::cli
