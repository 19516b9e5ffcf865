package minio

import (
	"fmt"

	"github.com/minio/minio-go/v7/pkg/credentials"
)

// credentials makes the provider that the options name.
func (o Options) credentials() (*credentials.Credentials, error) {
	if o.Credentials != nil {
		return o.Credentials, nil
	}
	switch o.Source {
	case Anonymous:
		return credentials.NewStatic("", "", "", credentials.SignatureAnonymous), nil
	case FromMachine:
		return credentials.NewIAM(o.STSEndpoint), nil
	}
	access, secret, session := o.environment()
	if access == "" || secret == "" {
		return nil, fmt.Errorf("no credentials: set MINIO_ACCESS_KEY and MINIO_SECRET_KEY (or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY), "+
			"or add credentials=%s or credentials=%s to the URL", FromMachine, Anonymous)
	}
	if o.Source != FromSTS {
		return credentials.NewStaticV4(access, secret, session), nil
	}
	endpoint := o.STSEndpoint
	if endpoint == "" {
		endpoint = "https://" + o.Endpoint
		if o.Plain {
			endpoint = "http://" + o.Endpoint
		}
	}
	creds, err := credentials.NewSTSAssumeRole(endpoint, credentials.STSAssumeRoleOptions{
		AccessKey: access, SecretKey: secret, SessionToken: session, Location: o.Region, RoleARN: o.RoleARN, RoleSessionName: "forebay",
	})
	if err != nil {
		return nil, fmt.Errorf("assume role at %s: %w", endpoint, err)
	}
	return creds, nil
}

// environment gives the keys of the environment: MinIO's variables, else Amazon's.
func (o Options) environment() (access, secret, session string) {
	if access, secret = o.Getenv("MINIO_ACCESS_KEY"), o.Getenv("MINIO_SECRET_KEY"); access != "" && secret != "" {
		return access, secret, ""
	}
	return o.Getenv("AWS_ACCESS_KEY_ID"), o.Getenv("AWS_SECRET_ACCESS_KEY"), o.Getenv("AWS_SESSION_TOKEN")
}
