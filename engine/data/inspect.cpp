#include "engine/data/inspect.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include "engine/data/batch_reader.hpp"
#include "engine/data/prepare.hpp"
#include "engine/data/unigram.hpp"

namespace kintsugi {

namespace {

constexpr std::size_t kChunkTokens = 64 * 1024;
constexpr std::uint64_t kMaxCounted = std::uint64_t{1} << 24;
constexpr std::size_t kShownBytes = 160;
constexpr std::size_t kShownNumbers = 32;

Result<std::shared_ptr<const TokenFile>> open_any(const std::string& path, std::optional<TokenFormat> format) {
  if (format) return TokenFile::open(path, *format);
  if (auto llmc = TokenFile::open(path, TokenFormat::llmc)) return llmc;
  return TokenFile::open(path, TokenFormat::uint16);
}

// Grows as larger tokens appear; gives up past kMaxCounted.
class Histogram {
 public:
  void add(std::uint32_t token) {
    if (token >= counts_.size()) grow(token);
    if (token < counts_.size()) ++counts_[token];
  }
  std::optional<double> entropy() const {
    if (gave_up_) return std::nullopt;
    return unigram_entropy_nats(counts_);
  }

 private:
  void grow(std::uint32_t token) {
    gave_up_ = gave_up_ || token >= kMaxCounted;
    if (!gave_up_)
      counts_.resize(
          std::max<std::size_t>(std::size_t{token} + 1, std::min(2 * counts_.size(), std::size_t{kMaxCounted})));
  }
  std::vector<std::uint64_t> counts_;
  bool gave_up_ = false;
};

std::string show(std::span<const std::uint32_t> tokens, bool as_text) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string shown;
  for (const std::uint32_t token : tokens.first(std::min(tokens.size(), as_text ? kShownBytes : kShownNumbers))) {
    if (!as_text) {
      shown += (shown.empty() ? "" : " ") + std::to_string(token);
    } else if (token == '\n') {
      shown += "\\n";
    } else if (token < 0x20 || token == 0x7f) {
      shown += std::string("\\x") + kDigits[token >> 4] + kDigits[token & 15];
    } else {
      shown += static_cast<char>(token);
    }
  }
  return shown;
}

}  // namespace

std::uint64_t TokenFacts::samples(std::uint64_t length) const {
  return sample_count(tokens, length);
}

Result<TokenFacts> inspect_tokens(const std::string& path, std::optional<TokenFormat> format) {
  KINTSUGI_TRY_ASSIGN(const std::shared_ptr<const TokenFile> file, open_any(path, format));
  TokenFacts facts;
  facts.format = file->format();
  facts.tokens = file->token_count();
  facts.smallest = UINT32_MAX;
  Histogram histogram;
  std::vector<std::uint32_t> chunk(kChunkTokens);
  for (std::uint64_t first = 0; first < facts.tokens; first += kChunkTokens) {
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(kChunkTokens, facts.tokens - first));
    const std::span<std::uint32_t> tokens(chunk.data(), count);
    file->read_raw(first, tokens);
    for (const std::uint32_t token : tokens) {
      facts.smallest = std::min(facts.smallest, token);
      facts.largest = std::max(facts.largest, token);
      histogram.add(token);
    }
  }
  facts.vocabulary_needed = std::uint64_t{facts.largest} + 1;
  facts.unigram_entropy_nats = histogram.entropy();
  chunk.resize(static_cast<std::size_t>(std::min<std::uint64_t>(kShownBytes, facts.tokens)));
  file->read_raw(0, chunk);
  facts.first_tokens = show(chunk, facts.largest < kByteVocabulary);
  return facts;
}

}  // namespace kintsugi
