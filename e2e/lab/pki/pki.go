// Package pki makes the certificates and kubeconfig files of a lab's cluster.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// lifetime is that of every certificate: a lab lives for minutes, a person's for days.
const lifetime = 30 * 24 * time.Hour

// Authority signs the certificates of one cluster and keeps them in a folder.
type Authority struct {
	dir  string
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	text []byte
}

// New makes an authority. The folder must exist.
func New(dir string) (*Authority, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "lab-ca"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	a := &Authority{dir: dir, key: key}
	a.cert = template // signs itself
	der, err := a.sign(template, &key.PublicKey)
	if err != nil {
		return nil, err
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		return nil, fmt.Errorf("read the authority's certificate: %w", err)
	}
	a.text = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if err := a.write("ca.crt", a.text); err != nil {
		return nil, err
	}
	return a, nil
}

func newKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	return key, nil
}

func (a *Authority) sign(template *x509.Certificate, public *ecdsa.PublicKey) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("make a serial number: %w", err)
	}
	template.SerialNumber = serial
	template.NotBefore = time.Now().Add(-time.Hour)
	template.NotAfter = time.Now().Add(lifetime)
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, public, a.key)
	if err != nil {
		return nil, fmt.Errorf("sign a certificate for %s: %w", template.Subject.CommonName, err)
	}
	return der, nil
}

// Subject is who a certificate is for: Kubernetes reads the user from CommonName and the groups from Organizations.
type Subject struct {
	CommonName    string
	Organizations []string
	DNSNames      []string
	Addrs         []netip.Addr
}

// Certificate is a signed certificate with its key, as PEM text.
type Certificate struct{ Cert, Key []byte }

// Issue signs a certificate that serves both ends of TLS.
func (a *Authority) Issue(subject Subject) (Certificate, error) {
	key, err := newKey()
	if err != nil {
		return Certificate{}, err
	}
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: subject.CommonName, Organization: subject.Organizations},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		DNSNames:    subject.DNSNames,
	}
	for _, addr := range subject.Addrs {
		template.IPAddresses = append(template.IPAddresses, net.IP(addr.AsSlice()))
	}
	der, err := a.sign(template, &key.PublicKey)
	if err != nil {
		return Certificate{}, err
	}
	keyText, err := encodeKey(key)
	if err != nil {
		return Certificate{}, err
	}
	return Certificate{Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), Key: keyText}, nil
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode a key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

// TLS is the certificate as package tls takes it.
func (c Certificate) TLS() (tls.Certificate, error) {
	pair, err := tls.X509KeyPair(c.Cert, c.Key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("read a certificate: %w", err)
	}
	return pair, nil
}

// ClientTLS is how a client trusts what the authority has signed.
func (a *Authority) ClientTLS() *tls.Config {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
}

// IssueFiles writes a certificate as NAME.crt and NAME.key.
func (a *Authority) IssueFiles(name string, subject Subject) error {
	cert, err := a.Issue(subject)
	if err != nil {
		return err
	}
	if err := a.write(name+".crt", cert.Cert); err != nil {
		return err
	}
	return a.write(name+".key", cert.Key)
}

// WriteSigningKey writes a pair of keys, NAME.key and NAME.pub, with which ServiceAccount tokens are signed.
func (a *Authority) WriteSigningKey(name string) error {
	key, err := newKey()
	if err != nil {
		return err
	}
	text, err := encodeKey(key)
	if err != nil {
		return err
	}
	if err := a.write(name+".key", text); err != nil {
		return err
	}
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return fmt.Errorf("encode a public key: %w", err)
	}
	return a.write(name+".pub", pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}

// Path answers the path of one of the authority's files.
func (a *Authority) Path(name string) string { return filepath.Join(a.dir, name) }

// CA answers the authority's certificate as PEM text.
func (a *Authority) CA() []byte { return a.text }

func (a *Authority) write(name string, text []byte) error {
	if err := os.WriteFile(a.Path(name), text, 0o600); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// User is how a client of the API server proves who it is: by a certificate or by a token.
type User struct {
	Certificate
	Token string
}

// WriteKubeconfig writes a kubeconfig file that needs no other file.
func (a *Authority) WriteKubeconfig(path, server, namespace string, user User) error {
	config := api.NewConfig()
	config.Clusters["lab"] = &api.Cluster{Server: server, CertificateAuthorityData: a.text}
	config.AuthInfos["user"] = &api.AuthInfo{
		ClientCertificateData: user.Cert, ClientKeyData: user.Key, Token: user.Token,
	}
	config.Contexts["lab"] = &api.Context{Cluster: "lab", AuthInfo: "user", Namespace: namespace}
	config.CurrentContext = "lab"
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return fmt.Errorf("write kubeconfig %s: %w", path, err)
	}
	return nil
}
