// How messages are named in errors: one wording for every carrier.
#pragma once

#include <string>

#include "transport/point_to_point.hpp"

namespace kintsugi::transport {

// "partial_sum of step 7 (item 3, part 65536)"
std::string describe(const MessageKey& key);
// "4096 B" or "any size"
std::string describe_size(std::size_t bytes);

// The three ways a wait ends badly; each names the peer and what was awaited.
Error deadline_passed(const char* doing, RankId peer, const std::string& what);
Error wrong_size(RankId from, const MessageKey& key, std::size_t expected, std::size_t arrived);
Error peer_gone(RankId peer, const std::string& why);

}  // namespace kintsugi::transport
