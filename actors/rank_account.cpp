#include "actors/rank_account.hpp"

#include <fstream>
#include <string>

namespace kintsugi::actors {

namespace {

// High-water mark of the resident set, bytes; 0 if the kernel does not tell.
std::uint64_t peak_memory_bytes() {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    std::uint64_t kib = 0;
    if (word == "VmHWM:" && status >> kib) return kib * 1024;
  }
  return 0;
}

}  // namespace

void write_work(const Trainer::Account& account, schemas::RankAccount::Builder out) {
  out.setCells(account.cells);
  out.setMicrobatches(account.work.backward);
  out.setForwardAgain(account.work.forward_again);
  out.setBackwardAgain(account.work.backward_again);
  out.setFlops(account.work.flops);
  out.setParameterBytes(account.parameter_bytes);
  out.setStateBytes(account.state_bytes);
  out.setReplicaBytes(account.replica_bytes);
  out.setComputeSeconds(account.busy_seconds);
  out.setWaitSeconds(account.wait_seconds);
  out.setPeakMemoryBytes(peak_memory_bytes());
  auto traffic = out.initTraffic(static_cast<unsigned>(account.traffic.size()));
  unsigned i = 0;
  std::uint64_t sent = 0, received = 0;
  for (const auto& [peer, t] : account.traffic) {
    traffic[i].setPeer(peer.value);
    traffic[i].setBytesSent(t.bytes_sent);
    traffic[i].setBytesReceived(t.bytes_received);
    sent += t.bytes_sent;
    received += t.bytes_received;
    ++i;
  }
  out.setBytesSent(sent);
  out.setBytesReceived(received);
}

}  // namespace kintsugi::actors
