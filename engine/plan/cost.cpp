#include "engine/plan/cost.hpp"

namespace kintsugi {

LayerFlops layer_flops(const ModelLayout& layout, LayerId layer, std::int64_t sequences, std::int64_t length) {
  const ModelConfig& c = layout.config();
  const double rows = static_cast<double>(sequences * length);
  double forward = 0;
  switch (layout.kind(layer)) {
    case LayerKind::embedding: break;  // a gather: no products
    case LayerKind::block: {
      const std::int64_t kv_width = c.kv_heads * c.head_dim();
      const std::int64_t up = c.family == ModelFamily::llama ? 2 * c.hidden : c.hidden;
      const double matrices = static_cast<double>(c.width * (c.width + 2 * kv_width) + c.width * c.width +
                                                  c.width * up + c.hidden * c.width);
      // Scores and values: two products over (length + 1) / 2 keys on average.
      const double attention = 2.0 * static_cast<double>(c.width) * static_cast<double>(length + 1) / 2.0;
      forward = 2.0 * rows * (matrices + attention);
      break;
    }
    case LayerKind::head: forward = 2.0 * rows * static_cast<double>(c.width * c.vocabulary); break;
  }
  return {forward, 2.0 * forward};
}

double step_flops(const ModelLayout& layout, const BatchConfig& batch) {
  double total = 0;
  for (std::uint32_t l = 0; l < layout.layer_count(); ++l) {
    total += layer_flops(layout, {l}, batch.sequences, batch.length).total();
  }
  return total;
}

}  // namespace kintsugi
