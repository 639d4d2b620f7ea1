// Command proto generates Go code from .proto files with protoc-gen-go, beside each file. It takes the place of
// protoc, which is no Go module that go.mod could pin.
//
//	cd tools && go run ./proto ../api/resources/v1/resources.proto
package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

func main() {
	for _, file := range os.Args[1:] {
		if err := generate(file); err != nil {
			fmt.Fprintf(os.Stderr, "proto: %s: %v\n", file, err)
			os.Exit(1)
		}
	}
}

func generate(file string) error {
	folder, name := filepath.Split(file)
	compiler := protocompile.Compiler{
		Resolver:       &protocompile.SourceResolver{ImportPaths: []string{folder}},
		SourceInfoMode: protocompile.SourceInfoStandard, // comments
	}
	compiled, err := compiler.Compile(context.Background(), name)
	if err != nil {
		return err
	}
	request, err := proto.Marshal(&pluginpb.CodeGeneratorRequest{
		FileToGenerate: []string{name},
		Parameter:      proto.String("paths=source_relative"),
		ProtoFile:      []*descriptorpb.FileDescriptorProto{protodesc.ToFileDescriptorProto(compiled[0])},
	})
	if err != nil {
		return err
	}
	plugin := exec.Command("go", "tool", "protoc-gen-go")
	plugin.Stdin, plugin.Stderr = bytes.NewReader(request), os.Stderr
	answer, err := plugin.Output()
	if err != nil {
		return fmt.Errorf("protoc-gen-go: %w", err)
	}
	var generated pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(answer, &generated); err != nil {
		return err
	}
	if generated.Error != nil {
		return fmt.Errorf("protoc-gen-go: %s", *generated.Error)
	}
	for _, one := range generated.File {
		if err := os.WriteFile(filepath.Join(folder, one.GetName()), []byte(one.GetContent()), 0o644); err != nil {
			return err
		}
	}
	return nil
}
