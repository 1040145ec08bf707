#include "actors/control_message.hpp"

#include <cstring>

#include "schemas/codec.hpp"

namespace kintsugi::actors {

ControlMessage::Content::Content(transport::Frame f, std::vector<FileDescriptor> fds)
    : frame(std::move(f)),
      reader(frame, strict_reader_options(frame.size())),
      root(reader.getRoot<schemas::Message>()),
      descriptors(std::move(fds)) {}

Result<ControlMessage> ControlMessage::parse(transport::Frame frame, std::vector<FileDescriptor> descriptors) {
  ControlMessage message;
  KINTSUGI_TRY(
      guarded([&] { message.content_ = std::make_shared<Content>(std::move(frame), std::move(descriptors)); }));
  return message;
}

transport::Frame ControlMessage::copy_frame() const {
  transport::Frame copy = kj::heapArray<capnp::word>(content_->frame.size());
  std::memcpy(copy.begin(), content_->frame.begin(), copy.asBytes().size());
  return copy;
}

}  // namespace kintsugi::actors
