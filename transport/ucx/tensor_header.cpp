#include "transport/ucx/tensor_header.hpp"

#include <capnp/message.h>
#include <capnp/serialize.h>
#include <schemas/tensor.capnp.h>

#include <cstring>

namespace kintsugi::transport::ucx {

using Words = std::array<capnp::word, kTensorHeaderBytes / sizeof(capnp::word)>;

EncodedHeader encode(const TensorHeader& header) {
  Words scratch;
  std::memset(scratch.data(), 0, sizeof scratch);
  capnp::MallocMessageBuilder message(kj::ArrayPtr<capnp::word>(scratch.data(), scratch.size()));
  auto h = message.initRoot<schemas::TensorHeader>();
  h.setJob(header.fence.job.value);
  h.setFrom(header.from.value);
  h.setLineage(header.fence.lineage.value);
  h.setEpoch(header.fence.generation.epoch);
  h.setCounter(header.fence.generation.counter);
  h.setStep(header.key.step.value);
  h.setItem(header.key.item);
  h.setPart(header.key.part);
  h.setBytes(header.bytes);
  h.setReleased(header.released);
  h.setKind(static_cast<std::uint8_t>(header.key.kind));
  const auto segments = message.getSegmentsForOutput();
  KINTSUGI_ASSERT(segments.size() == 1 && segments[0].size() * sizeof(capnp::word) == kTensorHeaderBytes);
  EncodedHeader encoded;
  std::memcpy(encoded.data(), segments[0].begin(), encoded.size());
  return encoded;
}

std::optional<TensorHeader> decode(std::span<const std::byte> bytes) {
  if (bytes.size() != kTensorHeaderBytes) return std::nullopt;
  Words words;
  std::memcpy(static_cast<void*>(words.data()), bytes.data(), bytes.size());
  try {
    const kj::ArrayPtr<const capnp::word> segment(words.data(), words.size());
    capnp::SegmentArrayMessageReader message(kj::arrayPtr(&segment, 1));
    const auto h = message.getRoot<schemas::TensorHeader>();
    TensorHeader header;
    header.fence = {{h.getJob()}, {h.getLineage()}, {h.getEpoch(), h.getCounter()}};
    header.from = {h.getFrom()};
    header.key = {static_cast<MessageKind>(h.getKind()), {h.getStep()}, h.getItem(), h.getPart()};
    header.bytes = h.getBytes();
    header.released = h.getReleased();
    return header;
  } catch (const kj::Exception&) {
    return std::nullopt;
  }
}

}  // namespace kintsugi::transport::ucx
