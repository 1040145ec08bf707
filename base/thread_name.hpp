// What `top -H` and /proc/PID/task/TID/comm call a thread.
#pragma once

namespace kintsugi {

// Of the calling thread. At most 15 characters (asserted). A new thread has its maker's name until it takes its own.
void name_thread(const char* name);

}  // namespace kintsugi
