#include "base/result.hpp"

namespace kintsugi {

const char* to_string(ErrorAction action) {
  switch (action) {
    case ErrorAction::retry: return "retry";
    case ErrorAction::fail_link: return "fail_link";
    case ErrorAction::end_generation: return "end_generation";
    case ErrorAction::restart_process: return "restart_process";
    case ErrorAction::tell_user: return "tell_user";
    case ErrorAction::refuse: return "refuse";
    case ErrorAction::cancelled: return "cancelled";
  }
  KINTSUGI_UNREACHABLE();
}

}  // namespace kintsugi
