// Package s3test starts real S3 servers for tests: versitygw over a temporary folder, or one that already runs.
//
// FOREBAY_TEST_S3=URL names a server that runs already, with FOREBAY_TEST_S3_NAME saying which it is (moto, localstack, ...); its
// credentials are those of the environment, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or test and test. Without it, versitygw is
// started; where .tools/versitygw is absent it is installed first, which takes minutes once.
package s3test
