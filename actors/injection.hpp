// Faults on purpose (`kintsugi inject`): what each does to a process.
#pragma once

#include <csignal>

#include "schemas/control.capnp.h"

namespace kintsugi::actors {

// The signal that is the fault; 0: it is another kind.
inline int signal_of(schemas::Inject::Fault fault) {
  switch (fault) {
    case schemas::Inject::Fault::KILL: return SIGKILL;
    case schemas::Inject::Fault::STOP: return SIGSTOP;
    case schemas::Inject::Fault::CONTINUE: return SIGCONT;
    case schemas::Inject::Fault::CORRUPT: return 0;
  }
  return 0;  // of a newer client
}

}  // namespace kintsugi::actors
