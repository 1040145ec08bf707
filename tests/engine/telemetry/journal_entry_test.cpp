#include "engine/telemetry/journal_entry.hpp"

#include <gtest/gtest.h>

#include "schemas/codec.hpp"
#include "schemas/journal.capnp.h"
#include "tests/engine/telemetry/journal_cases.hpp"

namespace kintsugi {
namespace {

TEST(JournalEntry, every_kind_is_read_back_as_it_was_written) {
  const std::vector<JournalEntry> entries = journal_cases::one_of_each();
  ASSERT_EQ(entries.size(), std::variant_size_v<decltype(JournalEntry::what)>);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    ASSERT_EQ(entries[i].what.index(), i) << "one of each, in order";
    const Result<JournalEntry> read = decode_entry(encode_entry(entries[i]));
    ASSERT_TRUE(read.ok()) << read.error().message;
    EXPECT_EQ(*read, entries[i]) << "kind " << i;
  }
}

TEST(JournalEntry, every_kind_of_event_has_a_name_and_is_read_back) {
  for (std::uint8_t k = 0; k < journaled::kEventKinds; ++k) {
    const auto kind = static_cast<journaled::EventKind>(k);
    EXPECT_STRNE(to_string(kind), "");
    const JournalEntry entry{0, journaled::Event{.kind = kind}};
    EXPECT_EQ(*decode_entry(encode_entry(entry)), entry);
  }
}

TEST(JournalEntry, text_keeps_every_byte) {
  const std::string text("a\0b\xff\n", 5);
  const JournalEntry entry{0, journaled::NodeJoined{.host = text, .labels = {text}}};
  EXPECT_EQ(*decode_entry(encode_entry(entry)), entry);
}

TEST(JournalEntry, an_event_of_a_kind_from_the_future_is_refused) {
  capnp::MallocMessageBuilder message;
  message.initRoot<schemas::journal::JournalEntry>().initEvent().setKind(
      static_cast<schemas::journal::EventKind>(journaled::kEventKinds));
  const Result<JournalEntry> read = decode_entry(encode_message(message));
  ASSERT_FALSE(read.ok());
  EXPECT_NE(read.error().message.find("its kind is unknown to this version"), std::string::npos);
}

TEST(JournalEntry, an_entry_of_a_kind_from_the_future_is_refused) {
  std::vector<std::byte> bytes = encode_entry(journal_cases::note("x"));
  // segments - 1, words; root pointer; wallNs; then the kind, 16 bits
  bytes[8 + 8 + 8] = std::byte{200};
  EXPECT_FALSE(decode_entry(bytes).ok());
}

TEST(JournalEntry, bytes_that_are_no_message_are_an_error) {
  EXPECT_FALSE(decode_entry({}).ok());
  EXPECT_FALSE(decode_entry(std::vector<std::byte>(7)).ok());
  EXPECT_FALSE(decode_entry(std::vector<std::byte>(64, std::byte{0xff})).ok());
}

}  // namespace
}  // namespace kintsugi
