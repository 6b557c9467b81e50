// Decode manifests strictly into Kueue's own API types: a field that a type lacks is an error.
//
//	decode <file.json    one JSON object a line; prints "<kind> <name>" for each
package main

import (
	"bufio"
	"fmt"
	"os"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta1"
)

func main() {
	scheme := runtime.NewScheme()
	if err := kueue.AddToScheme(scheme); err != nil {
		fail(err)
	}
	codecs := serializer.NewCodecFactory(scheme, serializer.EnableStrict)
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		object, kind, err := codecs.UniversalDeserializer().Decode(lines.Bytes(), nil, nil)
		if err != nil {
			fail(err)
		}
		fmt.Println(kind.Kind, object.(metav1.Object).GetName())
	}
	if err := lines.Err(); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
