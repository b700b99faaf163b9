package s3_test

import (
	"context"
	"fmt"
	"log"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/stores/s3"
)

// The sessions of a team on its own server, newest first. For S3 itself, create the
// client from the configuration that the AWS SDK's package config loads. An agent
// stores its sessions there with agent.Config.Store.
func Example() {
	ctx := context.Background()
	client := awss3.New(awss3.Options{
		BaseEndpoint: aws.String("https://objects.example.com"), UsePathStyle: true, Region: "none",
		Credentials: aws.CredentialsProviderFunc(credentials),
	})
	store, err := s3.New(ctx, client, "sessions", nil)
	if err != nil {
		log.Fatal(err)
	}
	all, err := session.List(ctx, store, &session.ListOptions{Limit: 20})
	if err != nil {
		log.Fatal(err)
	}
	for _, s := range all {
		fmt.Println(s.ID, s.Summary)
	}
}

func credentials(context.Context) (aws.Credentials, error) { return aws.Credentials{}, nil }
