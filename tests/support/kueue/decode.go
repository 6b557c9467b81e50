// Decode manifests strictly into Kueue's own API types: an unknown or repeated field is an error.
//
// It reads YAML documents from standard input and prints a line for each, its kind and name.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

func main() {
	scheme := runtime.NewScheme()
	check(kueue.AddToScheme(scheme))
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	documents := yaml.NewYAMLReader(bufio.NewReader(os.Stdin))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return
		}
		check(err)
		object, kind, err := decoder.Decode(document, nil, nil)
		check(err)
		fmt.Println(kind.Kind, object.(metav1.Object).GetName())
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
