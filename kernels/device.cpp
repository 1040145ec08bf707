#include "kernels/device.hpp"

namespace kintsugi::kernels {

const char* to_string(DType t) {
  switch (t) {
    case DType::float32: return "float32";
    case DType::bfloat16: return "bfloat16";
    case DType::int32: return "int32";
    case DType::byte: return "byte";
  }
  KINTSUGI_UNREACHABLE();
}

}  // namespace kintsugi::kernels
