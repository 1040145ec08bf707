// One link to a supervisor, as a client. What comes from it goes to an inbox.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/inbox.hpp"
#include "transport/link/cluster_file.hpp"
#include "transport/link/link_service.hpp"

namespace kintsugi::cli {

class Client {
 public:
  // Dials at once and returns; Connected or Disconnected follows in the inbox, which must outlive the client.
  // `silence`: a supervisor that does not answer for so long is lost.
  Client(Inbox& inbox, const transport::ClusterFile& cluster, const Logger& logger,
         Duration silence = milliseconds(1'600));
  // The same again, after Disconnected.
  void dial();
  // Before dial(): where the supervisor is from now on, with the same token.
  void move_to(std::vector<std::string> addresses) { cluster_.addresses = std::move(addresses); }

 private:
  Inbox& inbox_;
  transport::ClusterFile cluster_;
  const Duration silence_;
  transport::LinkService links_;
};

// One request and its one answer, in at most `kAnswerDeadline`. Error{refuse}: nobody answered; Error{cancelled}: a
// signal.
Result<actors::ControlMessage> ask(const std::string& state_directory, transport::Frame request, const Logger& logger);

// Likewise, of what is done or refused: Error{refuse} also when the answer is a refusal.
Result<void> order(const std::string& state_directory, transport::Frame request, const Logger& logger);

// What a supervisor on a busy machine may take to accept a link or to answer.
constexpr Duration kAnswerDeadline = seconds(5);

}  // namespace kintsugi::cli
