#include "kernels/cpu/matmul.hpp"

#include <oneapi/dnnl/dnnl.h>

#include <array>
#include <cstddef>
#include <map>
#include <oneapi/dnnl/dnnl.hpp>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/assert.hpp"
#include "kernels/cpu/column_sums.hpp"

namespace kintsugi::kernels::cpu {

namespace {

// A bfloat16 product is a oneDNN primitive, made once for a shape. Primitives, the stream and the scratchpad belong to
// a thread: nothing is locked.
struct Key {
  PanelShape shape;
  std::int64_t a_stride = 0, b_stride = 0;
  bool a_transposed = false, b_transposed = false, biased = false, accumulate = false, narrow_out = false;

  auto tied() const {
    return std::tie(shape.rows, shape.columns, shape.depth, shape.out_stride, a_stride, b_stride, a_transposed,
                    b_transposed, biased, accumulate, narrow_out);
  }
  bool operator<(const Key& other) const { return tied() < other.tied(); }
};

struct Product {
  dnnl::matmul primitive;
  dnnl::memory a, b, bias, out;
  std::size_t scratch_bytes = 0;
  std::unordered_map<int, dnnl::memory> arguments;
};

using Memory = dnnl::memory;

class Products {
 public:
  Product& get(const Key& key) {
    const auto found = made_.find(key);
    return found != made_.end() ? found->second : made_.emplace(key, make(key)).first->second;
  }

  void execute(Product& product) {
    if (scratch_.size() < product.scratch_bytes) scratch_.resize(product.scratch_bytes);
    if (product.scratch_bytes > 0) product.arguments.at(DNNL_ARG_SCRATCHPAD).set_data_handle(scratch_.data());
    product.primitive.execute(stream_, product.arguments);
  }

 private:
  Product make(const Key& key) {
    const PanelShape& s = key.shape;
    const auto bf16_type = Memory::data_type::bf16;
    const auto matrix = [](std::int64_t rows, std::int64_t columns, std::int64_t stride, bool transposed,
                           Memory::data_type type) {
      return Memory::desc({rows, columns}, type, transposed ? Memory::dims{1, stride} : Memory::dims{stride, 1});
    };
    const Memory::desc a = matrix(s.rows, s.depth, key.a_stride, key.a_transposed, bf16_type);
    const Memory::desc b = matrix(s.depth, s.columns, key.b_stride, key.b_transposed, bf16_type);
    const Memory::desc bias = key.biased ? matrix(1, s.columns, s.columns, false, bf16_type) : Memory::desc();
    const Memory::desc out =
        matrix(s.rows, s.columns, s.out_stride, false, key.narrow_out ? bf16_type : Memory::data_type::f32);
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (key.accumulate) {
      dnnl::post_ops sum;
      sum.append_sum(1.0f);
      attributes.set_post_ops(sum);
    }
    const auto operation = key.biased ? dnnl::matmul::desc(a, b, bias, out) : dnnl::matmul::desc(a, b, out);
    const dnnl::matmul::primitive_desc description(operation, attributes, engine_);
    Product product;
    product.primitive = dnnl::matmul(description);
    product.scratch_bytes = description.scratchpad_desc().get_size();
    const auto argument = [&](int id, const Memory::desc& desc) {
      return product.arguments.emplace(id, Memory(desc, engine_, nullptr)).first->second;
    };
    product.a = argument(DNNL_ARG_SRC, a);
    product.b = argument(DNNL_ARG_WEIGHTS, b);
    product.out = argument(DNNL_ARG_DST, out);
    if (key.biased) product.bias = argument(DNNL_ARG_BIAS, bias);
    if (product.scratch_bytes > 0) argument(DNNL_ARG_SCRATCHPAD, description.scratchpad_desc());
    return product;
  }

  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  std::map<Key, Product> made_;
  std::vector<std::byte> scratch_;
};

bool isa_has_bf16() {
  static const bool has =
      (static_cast<unsigned>(dnnl_get_effective_cpu_isa()) & dnnl_cpu_isa_avx512_core) == dnnl_cpu_isa_avx512_core;
  return has;
}

template <class Out>
void multiply_bf16(Out* out, const Operand<bf16>& a, const Operand<bf16>& b, const bf16* bias, bool accumulate,
                   const PanelShape& shape) {
  KINTSUGI_ASSERT(bias == nullptr || !accumulate);
  if (!isa_has_bf16()) return multiply_widened(out, a, b, bias, accumulate, shape);
  thread_local Products products;
  Product& product = products.get(
      {shape, a.stride, b.stride, a.transposed, b.transposed, bias != nullptr, accumulate, std::is_same_v<Out, bf16>});
  // oneDNN takes what it only reads as void* too.
  product.a.set_data_handle(const_cast<bf16*>(a.data));
  product.b.set_data_handle(const_cast<bf16*>(b.data));
  product.out.set_data_handle(out);
  if (bias != nullptr) product.bias.set_data_handle(const_cast<bf16*>(bias));
  products.execute(product);
}

}  // namespace

void multiply(float* out, Operand<float> a, Operand<float> b, const float* bias, bool accumulate, PanelShape shape) {
  KINTSUGI_ASSERT(bias == nullptr || !accumulate);
  if (bias != nullptr) repeat_row(out, bias, shape.rows, shape.columns, shape.out_stride);
  const float keep_out = bias != nullptr || accumulate ? 1.0f : 0.0f;
  const dnnl_status_t status =
      dnnl_sgemm(a.transposed ? 'T' : 'N', b.transposed ? 'T' : 'N', shape.rows, shape.columns, shape.depth, 1.0f,
                 a.data, a.stride, b.data, b.stride, keep_out, out, shape.out_stride);
  KINTSUGI_ASSERT_MSG(status == dnnl_success, "dnnl_sgemm refused its arguments");
}

void multiply(float* out, Operand<bf16> a, Operand<bf16> b, const bf16* bias, bool accumulate, PanelShape shape) {
  multiply_bf16(out, a, b, bias, accumulate, shape);
}

void multiply(bf16* out, Operand<bf16> a, Operand<bf16> b, const bf16* bias, bool accumulate, PanelShape shape) {
  multiply_bf16(out, a, b, bias, accumulate, shape);
}

}  // namespace kintsugi::kernels::cpu
