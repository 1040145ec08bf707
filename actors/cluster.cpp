#include "actors/cluster.hpp"

#include <caf/send.hpp>

#include <optional>
#include <utility>

#include "actors/cluster_supervisor.hpp"
#include "actors/system.hpp"

namespace kintsugi::actors {

// Sooner than the nodes give a silent supervisor up.
constexpr Duration kStallLimit = milliseconds(1'200);

// Declared in the order of need: links go first, then the actors they call.
struct Cluster::Impl {
  SteadyClock clock;
  std::optional<StallGuard> stall_guard;
  std::optional<ActorTree> tree;
  caf::actor_system_config config = make_system_config();
  caf::actor_system system{config};
  Event done;
  caf::actor supervisor;
  std::unique_ptr<transport::LinkService> links;
  transport::ListenAddress address;

  ~Impl() {
    links.reset();
    if (supervisor) caf::anon_send_exit(supervisor, caf::exit_reason::user_shutdown);
    supervisor = nullptr;
  }
};

Cluster::Cluster(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Cluster::~Cluster() = default;

Result<std::unique_ptr<Cluster>> Cluster::start(ClusterOptions options) {
  auto impl = std::make_unique<Impl>();
  if (options.on_stall) impl->stall_guard.emplace(kStallLimit, options.on_stall);
  impl->tree.emplace(options.logger);
  KINTSUGI_TRY_ASSIGN(
      impl->supervisor,
      spawn_cluster_supervisor(
          impl->system, {options.journal, options.embedded, options.version, options.logger, &impl->clock, impl->done,
                         impl->stall_guard ? &*impl->stall_guard : nullptr, &*impl->tree, options.on_spent}));
  impl->links = std::make_unique<transport::LinkService>(options.logger.with_component("link"));
  const caf::actor supervisor = impl->supervisor;
  const auto on_link = [supervisor](std::shared_ptr<transport::Link> link) {
    caf::anon_send(supervisor, LinkUp{std::move(link)});
    return callbacks_to(supervisor);
  };
  // A process that has dialled may still be starting.
  transport::LinkOptions pings = link_options();
  pings.first_answer = kStartTime;
  // By which nodes tell one life of a supervisor from the next, and what its journal calls this one.
  const Incarnation incarnation =
      options.journal ? options.journal->incarnation() : Incarnation{static_cast<std::uint64_t>(wall_clock_ns())};
  transport::ListenRequest request{.address = options.address,
                                   .port = options.port,
                                   .identity = std::move(options.identity),
                                   .incarnation = incarnation,
                                   .options = pings,
                                   .on_link = on_link};
  // A node that is told the incarnation which gave it up begins anew: by one that was away itself, it must not be.
  if (impl->stall_guard) request.before_welcome = [guard = &*impl->stall_guard] { guard->check(); };
  KINTSUGI_TRY_ASSIGN(impl->address, impl->links->listen(std::move(request)));
  return std::unique_ptr<Cluster>(new Cluster(std::move(impl)));
}

const transport::ListenAddress& Cluster::address() const {
  return impl_->address;
}
void Cluster::stop(const std::string& why) {
  caf::anon_send(impl_->supervisor, StopCluster{why});
}
const Event& Cluster::done() const {
  return impl_->done;
}

}  // namespace kintsugi::actors
