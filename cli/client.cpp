#include "cli/client.hpp"

#include <unistd.h>

namespace kintsugi::cli {

Client::Client(Inbox& inbox, const transport::ClusterFile& cluster, const Logger& logger, Duration silence)
    : inbox_(inbox), cluster_(cluster), silence_(silence), links_(logger) {
  dial();
}

void Client::dial() {
  Inbox& inbox = inbox_;
  transport::LinkCallbacks callbacks;
  callbacks.on_frame = [&inbox](transport::Link& link, transport::Frame frame, std::vector<FileDescriptor>) {
    Result<actors::ControlMessage> message = actors::ControlMessage::parse(std::move(frame));
    if (message)
      inbox.push(std::move(*message));
    else
      link.close(message.error().message);
  };
  callbacks.on_down = [&inbox](transport::Link&, const Error& why) { inbox.push(Disconnected{why}); };
  const transport::Hello hello{transport::LinkRole::client,
                               {static_cast<std::uint64_t>(wall_clock_ns())},
                               "client " + std::to_string(::getpid())};
  links_.dial({cluster_.addresses, cluster_.token, hello, kAnswerDeadline, {milliseconds(400), silence_}, callbacks},
              [&inbox](Result<std::shared_ptr<transport::Link>> link) {
                if (link)
                  inbox.push(Connected{std::move(*link)});
                else
                  inbox.push(Disconnected{link.error()});
              });
}

Result<actors::ControlMessage> ask(const std::string& state_directory, transport::Frame request, const Logger& logger) {
  KINTSUGI_TRY_ASSIGN(const transport::ClusterFile cluster, transport::read_cluster_file(state_directory));
  Inbox inbox;
  Client client(inbox, cluster, logger);
  const Instant deadline = SteadyClock().now() + kAnswerDeadline * 2;
  while (std::optional<InboxItem> item = inbox.next(deadline)) {
    if (auto* up = std::get_if<Connected>(&*item)) KINTSUGI_TRY(up->link->send(std::move(request)));
    if (auto* down = std::get_if<Disconnected>(&*item)) return Error{ErrorAction::refuse, down->why.message};
    if (std::holds_alternative<Interrupted>(*item)) return Error{ErrorAction::cancelled, "interrupted"};
    if (auto* answer = std::get_if<actors::ControlMessage>(&*item)) return std::move(*answer);
  }
  return Error{ErrorAction::refuse, "the supervisor did not answer in time; it may be overloaded: try again"};
}

Result<void> order(const std::string& state_directory, transport::Frame request, const Logger& logger) {
  KINTSUGI_TRY_ASSIGN(const auto answer, ask(state_directory, std::move(request), logger));
  Result<void> outcome;
  KINTSUGI_TRY(actors::guarded([&] {
    if (answer.get().isRefused()) outcome = Error{ErrorAction::refuse, answer.get().getRefused().getMessage().cStr()};
  }));
  return outcome;
}

}  // namespace kintsugi::cli
