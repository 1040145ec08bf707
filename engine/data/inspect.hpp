// The facts of a token file, from one pass over it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.hpp"
#include "engine/data/token_file.hpp"

namespace kintsugi {

struct TokenFacts {
  TokenFormat format = TokenFormat::uint16;
  std::uint64_t tokens = 0;
  std::uint32_t smallest = 0;
  std::uint32_t largest = 0;
  std::uint64_t vocabulary_needed = 0;  // largest + 1
  // Empty above 2^24 different tokens: that is no vocabulary, most likely the wrong format.
  std::optional<double> unigram_entropy_nats;
  // The first tokens: as text where all of the file are bytes (control characters as \xNN), else as numbers.
  std::string first_tokens;

  std::uint64_t samples(std::uint64_t length) const;
};

// `format` empty: llmc if the file starts with llm.c's magic, else uint16. Errors of TokenFile::open.
Result<TokenFacts> inspect_tokens(const std::string& path, std::optional<TokenFormat> format);

}  // namespace kintsugi
