#include "actors/system.hpp"

#include <caf/actor.hpp>
#include <caf/atom.hpp>
#include <caf/send.hpp>

namespace kintsugi::actors {

caf::actor_system_config make_system_config() {
  caf::actor_system_config config;
  config.set("scheduler.policy", caf::atom("sharing"));
  config.set("scheduler.max-threads", std::size_t{2});
  config.set("scheduler.max-throughput", std::size_t{50});
  config.set("logger.verbosity", caf::atom("quiet"));
  return config;
}

transport::LinkCallbacks callbacks_to(caf::actor owner) {
  transport::LinkCallbacks callbacks;
  callbacks.on_frame = [owner](transport::Link& link, transport::Frame frame, std::vector<FileDescriptor> descriptors) {
    Result<ControlMessage> message = ControlMessage::parse(std::move(frame), std::move(descriptors));
    if (message)
      caf::anon_send(owner, LinkFrame{link.shared_from_this(), std::move(*message)});
    else
      link.close(message.error().message);
  };
  callbacks.on_ping = [owner](transport::Link& link, std::uint64_t id) {
    caf::anon_send(owner, LinkPing{link.shared_from_this(), id});
  };
  callbacks.on_down = [owner](transport::Link& link, const Error& why) {
    caf::anon_send(owner, LinkDown{link.shared_from_this(), why});
  };
  return callbacks;
}

transport::LinkOptions link_options() {
  return {milliseconds(400), milliseconds(1'600)};
}

}  // namespace kintsugi::actors
