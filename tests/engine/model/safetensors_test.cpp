#include "engine/model/safetensors.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <fstream>

#include "base/file.hpp"
#include "base/philox.hpp"

namespace kintsugi {
namespace {

using testing::HasSubstr;

// Widths that divide nothing, so that slices start and end inside rows and tiles.
constexpr ModelConfig kGpt2{.family = ModelFamily::gpt2,
                            .layers = 1,
                            .width = 36,
                            .heads = 4,
                            .kv_heads = 4,
                            .hidden = 50,
                            .context = 8,
                            .vocabulary = 11,
                            .tied = true};
constexpr ModelConfig kLlama{.family = ModelFamily::llama,
                             .layers = 1,
                             .width = 24,
                             .heads = 4,
                             .kv_heads = 2,
                             .hidden = 40,
                             .context = 8,
                             .vocabulary = 11,
                             .tied = false};

float value_of(std::size_t parameter, std::int64_t element) {
  return static_cast<float>(standard_normal(philox_u64(philox_key(1), parameter, static_cast<std::uint64_t>(element))));
}

std::vector<float> values_of(const ModelLayout& layout, std::size_t parameter) {
  std::vector<float> values(static_cast<std::size_t>(layout.parameters()[parameter].count()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = value_of(parameter, static_cast<std::int64_t>(i));
  return values;
}

std::string temporary(const char* name) {
  return testing::TempDir() + "kintsugi_safetensors_" + name;
}

// Writes every parameter in slices of `slice` elements, last slice first.
void write_model(const std::string& path, const ModelLayout& layout, Precision precision, std::int64_t slice) {
  const SafetensorsPlan plan = plan_safetensors(layout, precision);
  const Result<FileDescriptor> fd = create_safetensors(path, plan);
  ASSERT_TRUE(fd.ok());
  for (std::size_t i = 0; i < layout.parameters().size(); ++i) {
    const Parameter& p = layout.parameters()[i];
    const std::vector<float> values = values_of(layout, i);
    for (std::int64_t first = (p.count() - 1) / slice * slice; first >= 0; first -= slice) {
      const std::int64_t count = std::min(slice, p.count() - first);
      ASSERT_TRUE(write_parameter_range(
          fd->get(), plan, p, first,
          std::span(values).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count))));
    }
  }
}

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(Safetensors, what_is_written_in_slices_reads_back_in_other_slices) {
  for (const ModelConfig& config : {kGpt2, kLlama}) {
    const ModelLayout layout(config);
    const std::string path = temporary("slices");
    for (const std::int64_t slice : {1000000, 977, 64, 7}) {
      write_model(path, layout, Precision::float32, slice);
      const Result<SafetensorsFile> file = SafetensorsFile::open(path);
      ASSERT_TRUE(file.ok()) << file.error().message;
      for (std::size_t i = 0; i < layout.parameters().size(); ++i) {
        const Parameter& p = layout.parameters()[i];
        const TensorEntry* const entry = file->find(p.name);
        ASSERT_NE(entry, nullptr) << p.name;
        std::vector<float> read(static_cast<std::size_t>(p.count()));
        for (std::int64_t first = 0; first < p.count(); first += 101) {
          const std::int64_t count = std::min<std::int64_t>(101, p.count() - first);
          ASSERT_TRUE(
              file->read(*entry, p, first,
                         std::span(read).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count))));
        }
        EXPECT_EQ(read, values_of(layout, i)) << p.name << " in slices of " << slice;
      }
    }
  }
}

TEST(Safetensors, gpt2_linear_weights_lie_transposed_in_the_file) {
  const ModelLayout layout(kGpt2);
  const std::string path = temporary("transposed");
  write_model(path, layout, Precision::float32, 500);
  const std::string bytes = bytes_of(path);
  const SafetensorsPlan plan = plan_safetensors(layout, Precision::float32);
  for (std::size_t i = 0; i < layout.parameters().size(); ++i) {
    const Parameter& p = layout.parameters()[i];
    if (!p.stored_transposed) continue;
    EXPECT_EQ(plan.tensors[i].shape, (std::vector{p.columns, p.rows}));
    for (std::int64_t r = 0; r < p.rows; ++r) {
      for (std::int64_t c = 0; c < p.columns; ++c) {
        float value = 0;
        std::memcpy(&value, bytes.data() + plan.tensors[i].begin_bytes + 4 * static_cast<std::size_t>(c * p.rows + r),
                    4);
        ASSERT_EQ(value, value_of(i, r * p.columns + c)) << p.name << " " << r << " " << c;
      }
    }
  }
}

TEST(Safetensors, bfloat16_rounds_to_the_nearest_even) {
  const ModelLayout layout(kLlama);
  const std::string path = temporary("bf16");
  write_model(path, layout, Precision::bfloat16, 100);
  const Result<SafetensorsFile> file = SafetensorsFile::open(path);
  ASSERT_TRUE(file.ok());
  const Parameter& p = layout.parameters()[0];
  std::vector<float> read(static_cast<std::size_t>(p.count()));
  ASSERT_TRUE(file->read(*file->find(p.name), p, 0, read));
  for (std::size_t i = 0; i < read.size(); ++i) {
    const float exact = value_of(0, static_cast<std::int64_t>(i));
    const float below = std::bit_cast<float>(std::bit_cast<std::uint32_t>(exact) & 0xFFFF0000u);
    const float above = std::bit_cast<float>((std::bit_cast<std::uint32_t>(exact) & 0xFFFF0000u) + 0x10000u);
    EXPECT_EQ(read[i], std::abs(exact - below) <= std::abs(above - exact) ? below : above);
  }
  const SafetensorsPlan plan = plan_safetensors(layout, Precision::bfloat16);
  const Result<FileDescriptor> fd = create_safetensors(path, plan);
  const float ties[] = {1.00390625f, 1.01171875f, std::nanf("")};  // 1 + 2^-8 goes down, 1 + 3 * 2^-8 goes up
  ASSERT_TRUE(write_parameter_range(fd->get(), plan, p, 0, ties));
  ASSERT_TRUE(file->read(*file->find(p.name), p, 0, std::span(read).first(3)));
  EXPECT_EQ(read[0], 1.0f);
  EXPECT_EQ(read[1], 1.015625f);
  EXPECT_TRUE(read[2] != read[2]);
}

// The bytes that Python's safetensors reads: length, JSON, spaces up to a multiple of 8.
TEST(Safetensors, the_header_is_the_formats) {
  const SafetensorsPlan plan = plan_safetensors(ModelLayout(kGpt2), Precision::bfloat16);
  std::uint64_t length = 0;
  std::memcpy(&length, plan.header.data(), 8);
  EXPECT_EQ(length + 8, plan.header.size());
  EXPECT_EQ(length % 8, 0u);
  EXPECT_THAT(
      plan.header.substr(8),
      testing::StartsWith(
          R"({"__metadata__":{"format":"pt"},"transformer.wte.weight":{"dtype":"BF16","shape":[11,36],"data_offsets":[0,792]},)"
          R"("transformer.wpe.weight":{"dtype":"BF16","shape":[8,36],"data_offsets":[792,1368]},)"));
}

std::string refusal(const std::string& header, std::uint64_t data_bytes) {
  const auto parsed = parse_safetensors_header(header, 100, 100 + data_bytes, "m.safetensors");
  EXPECT_FALSE(parsed.ok()) << header;
  return parsed ? "" : parsed.error().message;
}

TEST(Safetensors, headers_that_lie_are_refused) {
  const std::string a = R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  ASSERT_TRUE(parse_safetensors_header("{" + a + "}", 100, 108, "m").ok());
  EXPECT_THAT(refusal("", 8), HasSubstr("no JSON object"));
  EXPECT_THAT(refusal("[1]", 8), HasSubstr("no JSON object"));
  EXPECT_THAT(refusal("{" + a + "," + a + "}", 8), HasSubstr("twice"));
  EXPECT_THAT(refusal("{" + a + "}", 9), HasSubstr("belong to no tensor"));
  EXPECT_THAT(refusal("{" + a + "}", 7), HasSubstr("'a' has an impossible"));
  EXPECT_THAT(refusal("{" + a + R"(,"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8),
              HasSubstr("'b' overlaps another or leaves a gap"));
  EXPECT_THAT(refusal("{" + a + R"(,"b":{"dtype":"F32","shape":[1],"data_offsets":[12,16]}})", 16),
              HasSubstr("'b' overlaps another or leaves a gap"));
  for (const char* const entry :
       {R"({"dtype":"F31","shape":[2],"data_offsets":[0,8]})", R"({"dtype":"F32","shape":[3],"data_offsets":[0,8]})",
        R"({"dtype":"F32","shape":[-2],"data_offsets":[0,8]})", R"({"dtype":"F32","shape":2,"data_offsets":[0,8]})",
        R"({"dtype":"F32","shape":[2],"data_offsets":[8,0]})", R"({"dtype":"F32","shape":[2],"data_offsets":[0]})",
        R"({"dtype":"F32","shape":[4294967296,4294967296,2],"data_offsets":[0,8]})",
        R"({"dtype":"F32","shape":[2],"data_offsets":[0,8],"more":1})", R"({"dtype":7,"shape":[2]})", "5"}) {
    EXPECT_THAT(refusal(std::string(R"({"a":)") + entry + "}", 8), HasSubstr("'a' has an impossible")) << entry;
  }
}

TEST(Safetensors, files_cut_short_are_refused) {
  const std::string path = temporary("whole");
  write_model(path, ModelLayout(kLlama), Precision::float32, 1000000);
  const std::string whole = bytes_of(path);
  const std::string cut = temporary("cut");
  for (const std::size_t size : {std::size_t{0}, std::size_t{7}, std::size_t{8}, std::size_t{500}, whole.size() - 1}) {
    std::ofstream(cut, std::ios::binary) << whole.substr(0, size);
    EXPECT_FALSE(SafetensorsFile::open(cut).ok()) << size;
  }
  std::ofstream(cut, std::ios::binary) << std::string(16, '\xff');
  EXPECT_THAT(SafetensorsFile::open(cut).error().message, HasSubstr("impossible header length"));
  EXPECT_FALSE(SafetensorsFile::open(testing::TempDir()).ok());
}

}  // namespace
}  // namespace kintsugi
