#include "base/thread_name.hpp"

#include <pthread.h>

#include "base/assert.hpp"

namespace kintsugi {

void name_thread(const char* name) {
  KINTSUGI_ASSERT(pthread_setname_np(pthread_self(), name) == 0);
}

}  // namespace kintsugi
