// Messages of the control plane as they travel between actors of one process: parsed once, shared, never copied.
#pragma once

#include <capnp/message.h>
#include <capnp/serialize.h>

#include <memory>
#include <utility>
#include <vector>

#include "base/digest.hpp"
#include "base/file.hpp"
#include "base/ids.hpp"
#include "schemas/control.capnp.h"
#include "transport/link/link.hpp"

namespace kintsugi::actors {

// A received schemas::Message with the descriptors that came with it. Copies share it.
class ControlMessage {
 public:
  // The segment table is checked here; pointers are checked as they are followed (see `guarded`).
  static Result<ControlMessage> parse(transport::Frame frame, std::vector<FileDescriptor> descriptors = {});

  schemas::Message::Reader get() const { return content_->root; }
  schemas::Message::Which which() const { return content_->root.which(); }
  // The descriptors belong to whoever handles the message first.
  std::vector<FileDescriptor>& descriptors() const { return content_->descriptors; }
  // The same bytes again, for the next hop.
  transport::Frame copy_frame() const;

 private:
  struct Content {
    transport::Frame frame;
    capnp::FlatArrayMessageReader reader;
    schemas::Message::Reader root;
    std::vector<FileDescriptor> descriptors;
    Content(transport::Frame f, std::vector<FileDescriptor> fds);
  };
  std::shared_ptr<Content> content_;
};

// fill(schemas::Message::Builder)
template <class Fill>
transport::Frame make_frame(Fill fill) {
  capnp::MallocMessageBuilder message;
  fill(message.initRoot<schemas::Message>());
  return capnp::messageToFlatArray(message);
}

// Runs `handle`, which reads a message; hostile pointers in it become an Error{fail_link}.
template <class Handle>
Result<void> guarded(Handle handle) {
  try {
    handle();
    return {};
  } catch (const kj::Exception& e) {
    return Error{ErrorAction::fail_link, std::string("malformed control message: ") + e.getDescription().cStr()};
  }
}

inline Generation read_generation(schemas::Generation::Reader in) {
  return {in.getEpoch(), in.getCounter()};
}
inline void write_generation(Generation g, schemas::Generation::Builder out) {
  out.setEpoch(g.epoch);
  out.setCounter(g.counter);
}
inline Digest read_digest(schemas::Digest::Reader in) {
  return {in.getHigh(), in.getLow()};
}
inline void write_digest(Digest d, schemas::Digest::Builder out) {
  out.setHigh(d.high);
  out.setLow(d.low);
}

}  // namespace kintsugi::actors
