#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "transport/link/cluster_file.hpp"
#include "transport/link/identity.hpp"
#include "transport/link/private_file.hpp"

namespace kintsugi::transport {
namespace {

using testing::HasSubstr;

class Credentials : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "kintsugi-credentials-XXXXXX";
    ASSERT_NE(nullptr, ::mkdtemp(pattern.data()));
    directory_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string directory_;
};

TEST_F(Credentials, a_token_comes_back_from_its_text) {
  const JoinToken token = make_identity().token;
  const std::string text = to_text(token);
  EXPECT_EQ(text.size(), 101u);
  const Result<JoinToken> back = parse_join_token(text);
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(*back, token);
}

// Golden: python3 -c "import base64,hashlib; b=bytes(64); h=hashlib.sha256(b'kintsugi1.'+b).digest()[:4];
// print('kintsugi1.'+base64.urlsafe_b64encode(b+h).rstrip(b'=').decode())"
TEST_F(Credentials, the_text_of_a_token_is_what_the_format_says) {
  EXPECT_EQ(to_text(JoinToken{}), "kintsugi1." + std::string(85, 'A') + "CMv87k");
}

TEST_F(Credentials, any_single_mistyped_character_is_called_damage) {
  const std::string text = to_text(make_identity().token);
  for (std::size_t i = std::string("kintsugi1.").size(); i < text.size(); ++i) {
    std::string typo = text;
    typo[i] = typo[i] == 'x' ? 'y' : 'x';
    const Result<JoinToken> token = parse_join_token(typo);
    ASSERT_FALSE(token.ok()) << "position " << i;
    EXPECT_THAT(token.error().message, HasSubstr("damaged"));
  }
}

TEST_F(Credentials, what_is_no_token_of_this_version_is_told_apart) {
  EXPECT_THAT(parse_join_token("hello").error().message, HasSubstr("no join token"));
  EXPECT_THAT(parse_join_token("kintsugi2.AAAA").error().message, HasSubstr("another version"));
  EXPECT_THAT(parse_join_token("kintsugi1.AAAA").error().message, HasSubstr("instead of 101"));
  EXPECT_THAT(parse_join_token("kintsugi1.AA A").error().message, HasSubstr("no token has"));
}

TEST_F(Credentials, two_identities_share_nothing) {
  const Identity a = make_identity();
  const Identity b = make_identity();
  EXPECT_NE(a.token.fingerprint, b.token.fingerprint);
  EXPECT_NE(a.token.secret, b.token.secret);
}

TEST_F(Credentials, a_restarted_supervisor_is_the_same_one) {
  const Result<Identity> first = load_or_make_identity(directory_);
  const Result<Identity> again = load_or_make_identity(directory_);
  ASSERT_TRUE(first.ok() && again.ok());
  EXPECT_EQ(first->token, again->token);
  EXPECT_EQ(first->key_pem, again->key_pem);
}

TEST_F(Credentials, a_damaged_identity_is_refused_and_not_replaced) {
  const std::string path = directory_ + "/identity.json";
  for (const char* text : {"", "{}", "[]", R"({"certificate":"a","key":"b","secret":"c"})"}) {
    ASSERT_TRUE(write_private_file(path, text).ok());
    const Result<Identity> identity = load_or_make_identity(directory_);
    ASSERT_FALSE(identity.ok());
    EXPECT_THAT(identity.error().message, HasSubstr(path));
  }
}

TEST_F(Credentials, a_secret_file_is_private_and_one_that_is_not_is_refused) {
  const std::string path = directory_ + "/secret";
  ASSERT_TRUE(write_private_file(path, "s").ok());
  struct stat info {};
  ASSERT_EQ(0, ::stat(path.c_str(), &info));
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  ASSERT_EQ(0, ::chmod(path.c_str(), 0640));
  const Result<std::string> text = read_private_file(path, 100);
  ASSERT_FALSE(text.ok());
  EXPECT_THAT(text.error().message, HasSubstr("chmod 600"));
}

TEST_F(Credentials, clients_find_the_cluster_by_its_file) {
  EXPECT_EQ(read_cluster_file(directory_).error().action, ErrorAction::refuse);
  const ClusterFile cluster{{"10.0.0.1:7700", "[::1]:7700"}, make_identity().token};
  ASSERT_TRUE(write_cluster_file(directory_, cluster).ok());
  const Result<ClusterFile> back = read_cluster_file(directory_);
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->addresses, cluster.addresses);
  EXPECT_EQ(back->token, cluster.token);
  ASSERT_TRUE(write_private_file(directory_ + "/cluster.json", R"({"addresses":[1],"token":"x"})").ok());
  EXPECT_THAT(read_cluster_file(directory_).error().message, HasSubstr("damaged"));
  EXPECT_EQ(1, std::distance(std::filesystem::directory_iterator(directory_), {}));  // no temporary is left
}

}  // namespace
}  // namespace kintsugi::transport
