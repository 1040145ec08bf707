// Memory on its way to a rank: descriptors in frames of schemas::Segments, at most kMaxFrameDescriptors in each.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "actors/control_message.hpp"

namespace kintsugi::actors {

class SegmentSender {
 public:
  using Send = std::function<void(transport::Frame, std::vector<FileDescriptor>)>;

  SegmentSender(Generation generation, Send send) : generation_(generation), send_(std::move(send)) {}

  // A duplicate of `fd` goes out; describe(schemas::Segment::Builder) says what it is, later.
  template <class Describe>
  Result<void> add(const FileDescriptor& fd, Describe describe) {
    if (parts_.size() == transport::kMaxFrameDescriptors) flush(false);
    KINTSUGI_TRY_ASSIGN(FileDescriptor copy, duplicate(fd));
    parts_.push_back({std::move(copy), describe});
    return {};
  }
  // Once, after the last.
  void finish() { flush(true); }

 private:
  struct Part {
    FileDescriptor fd;
    std::function<void(schemas::Segment::Builder)> describe;
  };

  void flush(bool last) {
    std::vector<FileDescriptor> descriptors;
    transport::Frame frame = make_frame([&](schemas::Message::Builder m) {
      auto segments = m.initSegments();
      write_generation(generation_, segments.initGeneration());
      auto list = segments.initParts(static_cast<unsigned>(parts_.size()));
      for (unsigned i = 0; i < list.size(); ++i) parts_[i].describe(list[i]);
      segments.setLast(last);
    });
    for (Part& part : parts_) descriptors.push_back(std::move(part.fd));
    parts_.clear();
    send_(std::move(frame), std::move(descriptors));
  }

  const Generation generation_;
  const Send send_;
  std::vector<Part> parts_;
};

}  // namespace kintsugi::actors
