#include "actors/control_message.hpp"

#include <cstring>

namespace kintsugi::actors {

namespace {
capnp::ReaderOptions strict(std::size_t words) {
  capnp::ReaderOptions options;
  options.traversalLimitInWords = 1024 + 8 * static_cast<std::uint64_t>(words);
  options.nestingLimit = 32;
  return options;
}
}  // namespace

ControlMessage::Content::Content(transport::Frame f, std::vector<FileDescriptor> fds)
    : frame(std::move(f)), reader(frame, strict(frame.size())), root(reader.getRoot<schemas::Message>()),
      descriptors(std::move(fds)) {}

Result<ControlMessage> ControlMessage::parse(transport::Frame frame, std::vector<FileDescriptor> descriptors) {
  ControlMessage message;
  KINTSUGI_TRY(guarded(
      [&] { message.content_ = std::make_shared<Content>(std::move(frame), std::move(descriptors)); }));
  return message;
}

transport::Frame ControlMessage::copy_frame() const {
  transport::Frame copy = kj::heapArray<capnp::word>(content_->frame.size());
  std::memcpy(copy.begin(), content_->frame.begin(), copy.asBytes().size());
  return copy;
}

}  // namespace kintsugi::actors
