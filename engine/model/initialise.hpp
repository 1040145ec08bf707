// Initial values of parameters, each keyed by (model seed, parameter name, element): no layout shows in them.
#pragma once

#include <span>

#include "engine/model/layout.hpp"

namespace kintsugi {

// Writes elements [shard.offset, shard.offset + out.size()) of the shard's group. Thread safe.
void initialise_shard(const ModelLayout& layout, const Shard& shard, std::span<float> out);

}  // namespace kintsugi
