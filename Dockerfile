# The images, for those who have a container engine. Without one: make image.
#
#   docker build --target speaker --build-arg VERSION=v0.1.0 --tag ghcr.io/berthlb/berth/speaker:v0.1.0 .
#   docker build --target controller --build-arg VERSION=v0.1.0 --tag ghcr.io/berthlb/berth/controller:v0.1.0 .
FROM --platform=$BUILDPLATFORM golang:1.26 AS build
ARG TARGETARCH
ARG VERSION=dev
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 GOARCH=$TARGETARCH go build -trimpath -buildvcs=false \
    -ldflags "-s -w -X main.version=$VERSION" -o /bin/ ./controller ./speaker

FROM scratch AS controller
COPY --from=build /bin/controller /controller
USER 65532
ENTRYPOINT ["/controller"]

# A capability is given to root alone, and the speaker needs NET_RAW.
FROM scratch AS speaker
COPY --from=build /bin/speaker /speaker
USER 0
ENTRYPOINT ["/speaker"]
