// Runs a fuzz target over every file of a folder, and over each file cut short and with a bit flipped: a fixed few
// thousand inputs for builds without libFuzzer.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size);

int main(int count, char** arguments) {
  if (count != 2) return std::fprintf(stderr, "usage: %s CORPUS_FOLDER\n", arguments[0]), 2;
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(arguments[1])) {
    std::ifstream file(entry.path(), std::ios::binary);
    std::vector<char> text{std::istreambuf_iterator<char>(file), {}};
    auto* const bytes = reinterpret_cast<std::uint8_t*>(text.data());
    LLVMFuzzerTestOneInput(bytes, text.size());
    const std::size_t stride = text.size() / 200 + 1;
    for (std::size_t i = 0; i < text.size(); i += stride) {
      LLVMFuzzerTestOneInput(bytes, i);
      bytes[i] ^= static_cast<std::uint8_t>(1u << (i % 8));
      LLVMFuzzerTestOneInput(bytes, text.size());
      bytes[i] ^= static_cast<std::uint8_t>(1u << (i % 8));
    }
    ++files;
  }
  if (files == 0) return std::fprintf(stderr, "%s: no inputs; the corpus is missing\n", arguments[1]), 1;
  std::printf("%zu inputs replayed\n", files);
  return 0;
}
